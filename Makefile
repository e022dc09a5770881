# Builds and installs the C library, its headers, and the server.
#
#   make
#   make install PREFIX=/usr/local
#   make install-lib install-dev DESTDIR=/tmp/staged PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu
#   make deb
#
# Rust programs do not need any of this: they name the crate in their Cargo.toml.

CARGO ?= cargo
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DESTDIR ?=
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
# Another one makes a quicker build of a larger library.
PROFILE ?= packaged

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
BUILT = $(CARGO_TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# Each library from a build of its own: made together they get no link-time optimization.
LIBRARY = $(CARGO) rustc --locked --package lockclient --lib --profile $(PROFILE)
INSTALL = install -D -m
SUBSTITUTE = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' -e 's|@VERSION@|$(VERSION)|'

.PHONY: all shared static server install install-lib install-dev install-server deb

all: shared static server

shared:
	$(LIBRARY) --crate-type cdylib

static:
	$(LIBRARY) --crate-type staticlib

server:
	$(CARGO) build --locked --package lockd --profile $(PROFILE)

install: install-lib install-dev install-server

# What programs need to run.
install-lib: shared
	$(INSTALL) 755 $(BUILT)/liblockclient.so $(DESTDIR)$(LIBDIR)/liblockclient.so.1

# What is needed to build them.
install-dev: static
	$(INSTALL) 644 include/lockclient.h $(DESTDIR)$(INCLUDEDIR)/lockclient.h
	$(INSTALL) 644 include/lockclient.hpp $(DESTDIR)$(INCLUDEDIR)/lockclient.hpp
	$(INSTALL) 644 $(BUILT)/liblockclient.a $(DESTDIR)$(LIBDIR)/liblockclient.a
	ln -sf liblockclient.so.1 $(DESTDIR)$(LIBDIR)/liblockclient.so
	mkdir -p $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/lockclient
	$(SUBSTITUTE) packaging/lockclient.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/lockclient.pc
	$(SUBSTITUTE) packaging/lockclientConfig.cmake.in \
		> $(DESTDIR)$(LIBDIR)/cmake/lockclient/lockclientConfig.cmake
	$(SUBSTITUTE) packaging/lockclientConfigVersion.cmake.in \
		> $(DESTDIR)$(LIBDIR)/cmake/lockclient/lockclientConfigVersion.cmake

install-server: server
	$(INSTALL) 755 $(BUILT)/lockd $(DESTDIR)$(BINDIR)/lockd

deb:
	packaging/deb.sh $(CARGO_TARGET_DIR)/deb
