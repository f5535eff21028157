//! A balancer of TCP connections between the node and its API servers, which can lose what it
//! forwards.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Balancer {
    pub port: u16,
    /// The port of the server that new connections lead to.
    server: Arc<AtomicU16>,
    connections: Arc<Mutex<Vec<Arc<Connection>>>>,
}

#[derive(Default)]
struct Connection {
    /// How often something came from the server.
    answers: AtomicUsize,
    closed: AtomicBool,
    /// Nothing is forwarded any more, and both sides stay open.
    lost: AtomicBool,
}

impl Balancer {
    /// In the network of the calling thread.
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let balancer = Self {
            port: listener.local_addr().unwrap().port(),
            server: Arc::new(server.into()),
            connections: Arc::default(),
        };
        let (server, connections) = (balancer.server.clone(), balancer.connections.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server.load(Ordering::SeqCst)))
                else {
                    continue;
                };
                let connection = Arc::new(Connection::default());
                connections.lock().unwrap().push(connection.clone());
                forward(&client, &server, connection);
            }
        });
        balancer
    }

    /// New connections lead there; those that are open stay where they are.
    pub(crate) fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::SeqCst);
    }

    /// Forgets the connections that are open, without a word to either side.
    pub(crate) fn lose_connections(&self) {
        for connection in self.connections.lock().unwrap().iter() {
            connection.lost.store(true, Ordering::SeqCst);
        }
    }

    /// For each connection there ever was, how often something came from the server; `None` where
    /// it was closed.
    pub(crate) fn answers(&self) -> Vec<Option<usize>> {
        let answers = |connection: &Arc<Connection>| {
            let answers = connection.answers.load(Ordering::SeqCst);
            (!connection.closed.load(Ordering::SeqCst)).then_some(answers)
        };
        self.connections
            .lock()
            .unwrap()
            .iter()
            .map(answers)
            .collect()
    }
}

fn forward(client: &TcpStream, server: &TcpStream, connection: Arc<Connection>) {
    for (from, to, answers) in [(client, server, false), (server, client, true)] {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let connection = connection.clone();
        thread::spawn(move || copy(from, to, answers, &connection));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, answers: bool, connection: &Connection) {
    let mut bytes = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if connection.lost.load(Ordering::SeqCst) {
            continue;
        }
        connection
            .answers
            .fetch_add(usize::from(answers), Ordering::SeqCst);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    connection.closed.store(true, Ordering::SeqCst);
    if !connection.lost.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
    }
}
