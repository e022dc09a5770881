#!/bin/sh
# Makes three Debian packages in a directory: liblockclient1 (the shared library), liblockclient-dev
# (headers, the static library, pkg-config and CMake files) and lockd (the server).
#
#   packaging/deb.sh DIRECTORY
set -eu
cd "$(dirname "$0")/.."

directory=${1:?usage: packaging/deb.sh DIRECTORY}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)
maintainer=${DEBFULLNAME:-lockclient developers}" <"${DEBEMAIL:-lockclient@localhost}">"

# package MAKE-TARGET NAME SECTION DEPENDS SUMMARY
package() {
    staged=$directory/$2
    rm -rf "$staged"
    make --no-print-directory "$1" DESTDIR="$staged" PREFIX=/usr LIBDIR="$libdir"
    documents=$staged/usr/share/doc/$2
    mkdir -p "$staged/DEBIAN" "$documents"
    cp LICENSE-APACHE LICENSE-MIT "$documents"
    {
        echo "Package: $2"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: $maintainer"
        echo "Section: $3"
        echo "Priority: optional"
        echo "Depends: $4"
        echo "Installed-Size: $(du -sk "$staged/usr" | cut -f1)"
        echo "Description: $5"
    } > "$staged/DEBIAN/control"
    if [ "$2" = liblockclient1 ]; then
        echo 'activate-noawait ldconfig' > "$staged/DEBIAN/triggers"
    fi
    dpkg-deb --root-owner-group --build "$staged" "$directory/${2}_${version}_$architecture.deb"
    rm -rf "$staged"
}

package install-lib liblockclient1 libs 'libc6 (>= 2.34), libgcc-s1' \
    'blocking client for a lease-based lock service: shared library'
package install-dev liblockclient-dev libdevel "liblockclient1 (= $version)" \
    'blocking client for a lease-based lock service: development files'
package install-server lockd net 'libc6 (>= 2.34), libgcc-s1' \
    'server of a lease-based lock service'
