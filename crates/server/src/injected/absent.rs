//! Nothing is ordered.

use std::sync::Arc;

use axum::Router;
use relight_protocol::Request;

use crate::app::App;

pub(crate) fn add_route(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
}

#[inline]
pub(crate) fn handler(_requests: &[Request]) {}

#[inline]
pub(crate) fn stream() {}
