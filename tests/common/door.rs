//! A listening socket that can refuse for a while. Its port stays its own meanwhile.

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};

/// A port of the loopback interface.
#[derive(Debug)]
pub(crate) struct Door {
    socket: Socket,
    /// Keeps the port while nobody listens on it.
    _place: Socket,
    address: SocketAddr,
}

fn bound(port: u16) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an address to be shared");
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    socket.bind(&address.into()).expect("a port of the loopback interface");
    socket
}

impl Door {
    /// A port at which connections are refused.
    pub(crate) fn closed() -> Door {
        let place = bound(0);
        let address = place.local_addr().expect("an address").as_socket().expect("of IP");
        Door { socket: bound(address.port()), _place: place, address }
    }

    /// A port at which connections are accepted.
    pub(crate) fn open() -> Door {
        let door = Door::closed();
        door.listen();
        door
    }

    /// The same, where the system takes in little that is not read.
    pub(crate) fn narrow() -> Door {
        let door = Door::closed();
        door.socket.set_recv_buffer_size(1).expect("as little as there can be");
        door.listen();
        door
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections are accepted from now on.
    pub(crate) fn listen(&self) {
        self.socket.listen(1024).expect("listen");
    }

    /// Connections are refused from now on, and whoever is in [`Door::accept`] is sent away.
    pub(crate) fn refuse(&self) {
        // Fails only if it refuses already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// The next connection.
    ///
    /// # Errors
    /// Connections are refused.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.socket.accept()?;
        let stream: TcpStream = stream.into();
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The listening socket again, not blocking, for a poll of its own.
    pub(crate) fn listener(&self) -> io::Result<std::net::TcpListener> {
        let listener: std::net::TcpListener = self.socket.try_clone()?.into();
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// A port whose queue of new connections is full: a SYN that is sent there is not answered.
#[derive(Debug)]
pub(crate) struct Flooded {
    socket: Socket,
    /// What fills the queue.
    _fill: Vec<Socket>,
}

impl Flooded {
    pub(crate) fn new() -> Flooded {
        let socket = bound(0);
        socket.listen(0).expect("listen");
        let address = socket.local_addr().expect("an address");
        let mut fill = Vec::new();
        // The system makes the queue somewhat longer than it was asked to.
        for _ in 0..64 {
            let filler = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let patience = std::time::Duration::from_millis(150);
            let connected = filler.connect_timeout(&address, patience);
            fill.push(filler);
            if connected.is_err() {
                return Flooded { socket, _fill: fill };
            }
        }
        panic!("a queue of no length holds 64 connections");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("an address").as_socket().expect("of IP")
    }
}
