//! The harness tests itself: a test that relies on a tool that does not work proves nothing.

mod chaos_proxy;
mod private_servers;
mod scene;
mod shared_servers;
