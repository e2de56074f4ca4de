//! [`Methods`]: the methods of a route with their handlers, written as axum has it, and told by their names.

use axum::handler::Handler;
use axum::routing::{self, MethodRouter};

use super::App;

/// The methods of a route, with their handlers.
pub(super) struct Methods {
    names: Vec<&'static str>,
    router: MethodRouter<App>,
}

pub(super) fn get<T: 'static>(handler: impl Handler<T, App>) -> Methods {
    Methods { names: vec!["GET"], router: routing::get(handler) }
}

pub(super) fn post<T: 'static>(handler: impl Handler<T, App>) -> Methods {
    Methods { names: vec!["POST"], router: routing::post(handler) }
}

pub(super) fn put<T: 'static>(handler: impl Handler<T, App>) -> Methods {
    Methods { names: vec!["PUT"], router: routing::put(handler) }
}

pub(super) fn delete<T: 'static>(handler: impl Handler<T, App>) -> Methods {
    Methods { names: vec!["DELETE"], router: routing::delete(handler) }
}

pub(super) fn any<T: 'static>(handler: impl Handler<T, App>) -> Methods {
    Methods { names: vec!["ANY"], router: routing::any(handler) }
}

impl Methods {
    /// Their names; `ANY` for all of them.
    pub(super) fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Their handlers.
    pub(super) fn router(&self) -> MethodRouter<App> {
        self.router.clone()
    }

    pub(super) fn get<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.with("GET", |router| router.get(handler))
    }

    pub(super) fn head<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.with("HEAD", |router| router.head(handler))
    }

    pub(super) fn post<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.with("POST", |router| router.post(handler))
    }

    pub(super) fn put<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.with("PUT", |router| router.put(handler))
    }

    pub(super) fn delete<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.with("DELETE", |router| router.delete(handler))
    }

    fn with(mut self, name: &'static str, add: impl FnOnce(MethodRouter<App>) -> MethodRouter<App>) -> Self {
        self.names.push(name);
        Self { names: self.names, router: add(self.router) }
    }
}
