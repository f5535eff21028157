//! One request from its head to its answer: authentication, authorization, limits, and the resource
//! or page it is for.

use crate::answer::{Answer, Body};
use crate::app::App;
use crate::auth::audit::Record;
use crate::auth::certificate::{self, ClientCertificate};
use crate::auth::user::ANONYMOUS;
use crate::auth::{Action, Credentials, Request as Asked, User, impersonate};
use crate::limits::{LastRefusal, Limits, Load, MOST_BODY, Share};
use crate::negotiate::Accept;
use crate::request::{Place, Query, ResourcePath};
use crate::resource::{Call, Verb, method_not_allowed, post_to_an_object};
use crate::shares::Flow;
use crate::{pages, random, reviews};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, Uri};
use jiff::Timestamp;
use portico_api::selector;
use portico_api::status::{ApiError, Result};
use portico_client::connections::{Guest, UnderWay};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the rest of a body that is not used is read: most of those are on their way already.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// The time limit for an answer to be taken, and bytes that a client has to take in a second beyond
/// that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const LEAST_RATE: usize = 64 * 1024;
/// Smaller answers need no share of memory: their number is bounded by the requests under way.
const SMALL_ANSWER: usize = 16 * 1024;

/// The other end of a connection.
pub(crate) struct Peer {
    pub address: SocketAddr,
    pub guest: Arc<Guest>,
    pub last_refusal: LastRefusal,
    pub certificate: Option<std::result::Result<ClientCertificate, certificate::Error>>,
}

/// The head of a request, taken apart.
struct Head {
    method: Method,
    uri: Uri,
    query: Query,
    place: Place,
    verb: Option<Verb>,
    /// The one object that a list or a watch can show, by its field selector: rules that name
    /// objects allow it as they allow to read that object.
    selected: Option<String>,
    headers: HeaderMap,
}

impl Head {
    fn new(request: Parts) -> Self {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = request;
        let query = Query::parse(uri.query().unwrap_or_default());
        let place = ResourcePath::parse(uri.path());
        let verb = match &place {
            Place::Resource(resource) => Verb::of(method.as_str(), resource, &query),
            Place::Other => None,
        };
        let selected = match verb {
            Some(Verb::List | Verb::Watch) => selector::only_name(query.text("fieldSelector")),
            _ => None,
        };
        Self {
            method,
            uri,
            query,
            place,
            verb,
            selected,
            headers,
        }
    }

    /// Path and query, as they came.
    fn whole_path(&self) -> &str {
        self.uri
            .path_and_query()
            .map_or(self.uri.path(), PathAndQuery::as_str)
    }

    fn header(&self, name: header::HeaderName) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    fn verb_name(&self) -> &'static str {
        match (self.verb, self.method.as_str()) {
            (Some(verb), _) => verb.name(),
            (None, "GET") => "get",
            (None, "POST") => "post",
            (None, "PUT") => "put",
            (None, "PATCH") => "patch",
            (None, "DELETE") => "delete",
            (None, "HEAD") => "head",
            (None, "OPTIONS") => "options",
            (None, _) => "other",
        }
    }

    fn resource(&self) -> &str {
        match &self.place {
            Place::Resource(path) => &path.resource,
            Place::Other => "",
        }
    }

    /// What is to be decided about.
    fn action(&self) -> Action<'_> {
        match &self.place {
            Place::Resource(path) => Action::Resource(Asked {
                verb: self.verb_name(),
                group: &path.group,
                resource: &path.resource,
                subresource: &path.subresource,
                name: match &self.selected {
                    Some(name) if path.name.is_empty() => name,
                    _ => &path.name,
                },
                namespace: &path.namespace,
            }),
            Place::Other => Action::NonResource {
                verb: self.verb_name(),
                path: self.uri.path(),
            },
        }
    }

    /// Does it announce more than may come?
    fn is_too_large(&self) -> bool {
        let length = self.header(header::CONTENT_LENGTH).parse::<usize>();
        length.is_ok_and(|length| length > MOST_BODY)
    }

    fn load(&self) -> Load {
        match self.verb {
            Some(Verb::Watch) => Load::Watch,
            Some(verb) if verb.writes() => Load::Write,
            _ => Load::Read,
        }
    }
}

/// Answer a request. Never fails: what goes wrong becomes a `Status`.
pub(crate) async fn handle(
    app: Arc<App>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Response<Body> {
    let started = Instant::now();
    let received = Timestamp::now();
    let http2 = request.version() == hyper::Version::HTTP_2;
    let (head, mut body) = request.into_parts();
    let head = Head::new(head);
    let mut who = Who::default();
    let (mut answer, error) = match answer(&app, &peer, &head, &mut body, &mut who).await {
        Ok(answer) => (answer, None),
        Err(error) => (
            Answer::error(&error, head.header(header::ACCEPT)),
            Some(error),
        ),
    };
    if answer.code == 429 {
        app.limits.hold_back(&peer.last_refusal).await;
    }
    // What was not read to its end would be taken for the next request: such a connection ends
    // here.
    let finished = body.is_end_stream() || (!head.is_too_large() && drain(body).await);
    let encodings = head.header(header::ACCEPT_ENCODING);
    if answer.is_packable(encodings) {
        let flow = who.flow.clone().unwrap_or_else(Flow::own);
        // Without a turn it is sent as it is.
        let pack = app.registry.processor.run(&flow, || answer.pack());
        drop(pack.await);
    }
    let answer = if finished || http2 {
        answer
    } else {
        answer.last()
    };
    let audit_id = random::uuid();
    let code = answer.code;
    let known = match &head.place {
        Place::Resource(path) => app
            .registry
            .kind(&path.group, &path.version, &path.resource)
            .is_some(),
        Place::Other => false,
    };
    // Only names that exist become labels: a scanner must not grow the metrics without end.
    let resource = if known { head.resource() } else { "" };
    app.metrics
        .count(head.verb_name(), resource, code, started.elapsed());
    if code >= 500 {
        tracing::warn!(
            method = head.method.as_str(),
            path = head.uri.path(),
            code,
            "request failed"
        );
    }
    if let Some(log) = &app.audit {
        let nobody = User::anonymous();
        let version = match &head.place {
            Place::Resource(path) => path.version.as_str(),
            Place::Other => "",
        };
        log.record(&Record {
            audit_id: &audit_id,
            uri: head.whole_path(),
            action: head.action(),
            version,
            user: who.user.as_ref().unwrap_or(&nobody),
            impersonated: who.acting_as.as_ref(),
            source: &[peer.address.ip()],
            user_agent: head.header(header::USER_AGENT),
            code,
            error: error.as_ref(),
            received,
            finished: Timestamp::now(),
            reason: &who.reason,
        })
        .await;
    }
    let mut under_way = who.under_way.unwrap_or_else(|| peer.guest.request(None));
    if !answer.is_stream() {
        let seconds = answer.size() / LEAST_RATE;
        under_way.sending(ANSWER_TIMEOUT + Duration::from_secs(seconds as u64));
    }
    answer.holding(under_way).into_response(&audit_id)
}

/// The user of the request, once it is known.
#[derive(Default)]
struct Who {
    under_way: Option<UnderWay>,
    /// The user whose share the request counts for.
    flow: Option<Flow>,
    user: Option<User>,
    acting_as: Option<User>,
    /// Why it was allowed.
    reason: String,
}

async fn answer(
    app: &Arc<App>,
    peer: &Peer,
    head: &Head,
    body: &mut Incoming,
    who: &mut Who,
) -> Result<Answer> {
    let user = who_asks(app, peer, head, who)?;
    let flow = Flow::of(&user, peer.address.ip());
    who.flow = Some(flow.clone());
    who.under_way = Some(peer.guest.request(identity(who)));
    let load = head.load();
    // Before anything that costs more than the refusal.
    app.limits.check(&flow, load)?;
    who.reason = allow(app, &user, head)?;
    head.query.duration("timeout")?;
    if head.is_too_large() {
        return Err(too_large());
    }
    let path = match &head.place {
        Place::Resource(path) => path,
        Place::Other => {
            let seat = app.limits.take(&flow, Load::Read, 1)?;
            let page = pages::answer(
                app,
                head.method.as_str(),
                head.uri.path(),
                &head.query,
                &head.headers,
            );
            return Ok(page.await?.holding(seat));
        }
    };
    let (body, _bytes) = match load {
        Load::Write => read_body(&app.limits, &flow, body).await?,
        _ => (Bytes::new(), None),
    };
    let seat = app.limits.take(&flow, load, 1)?;
    if load == Load::Write {
        app.limits.line_up(load).await;
    }
    let answer = resource(app, head, path, &user, &flow, &body).await?;
    if answer.is_stream() {
        return Ok(answer.holding((seat, WatchGauge::enter(app))));
    }
    let size = answer.size();
    let answer = match load {
        _ if answer.is_charged() || size < SMALL_ANSWER => answer,
        // What was done is done, and has to be told.
        Load::Write => answer.charged(app.limits.charge(&flow, Load::Bytes, size)),
        _ => answer.charged(app.limits.take(&flow, Load::Bytes, size)?),
    };
    Ok(answer.holding(seat))
}

/// The identity that the connection counts for.
fn identity(who: &Who) -> Option<&str> {
    let user = who.user.as_ref()?;
    (user.name != ANONYMOUS).then_some(user.name.as_str())
}

/// Counts an open watch as long as it lives.
struct WatchGauge(Arc<App>);

impl WatchGauge {
    fn enter(app: &Arc<App>) -> Self {
        app.metrics.watchers.inc();
        Self(Arc::clone(app))
    }
}

impl Drop for WatchGauge {
    fn drop(&mut self) {
        self.0.metrics.watchers.dec();
    }
}

fn who_asks(app: &App, peer: &Peer, head: &Head, who: &mut Who) -> Result<User> {
    let credentials = Credentials {
        certificate: peer.certificate.as_ref(),
        authorization: head
            .headers
            .get(header::AUTHORIZATION)
            .map(|value| value.as_bytes()),
    };
    let user = app
        .authenticator
        .authenticate(&credentials, Timestamp::now())?;
    who.user = Some(user.clone());
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    let rbac = app
        .rbac
        .read()
        .map_err(|_| ApiError::internal("the access rules are not readable"))?;
    match impersonate::impersonated(&rbac, &user, headers)? {
        None => Ok(user),
        Some(other) => {
            who.acting_as = Some(other.clone());
            Ok(other)
        }
    }
}

/// Why it is allowed, or that it is not.
fn allow(app: &App, user: &User, head: &Head) -> Result<String> {
    let action = head.action();
    let decision = app
        .rbac
        .read()
        .map_err(|_| ApiError::internal("the access rules are not readable"))?
        .decide(user, &action);
    if decision.allowed {
        Ok(decision.reason)
    } else {
        Err(action.forbidden(user, &decision))
    }
}

fn too_large() -> ApiError {
    ApiError::too_large(format!(
        "the request body may have at most {MOST_BODY} bytes"
    ))
}

/// The body of a request, and the share of memory that it has.
async fn read_body(
    limits: &Arc<Limits>,
    flow: &Flow,
    body: &mut Incoming,
) -> Result<(Bytes, Option<Share>)> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    let _arriving = limits.take(flow, Load::Body, 1)?;
    let mut share = limits.charge(flow, Load::Bytes, 0);
    let all = tokio::time::timeout(BODY_TIMEOUT, collect(body, &mut share));
    match all.await {
        Ok(bytes) => Ok((bytes?, Some(share))),
        Err(_) => Err(ApiError::new(
            408,
            "Timeout",
            "the request body did not arrive in time",
        )),
    }
}

async fn collect(body: &mut Incoming, share: &mut Share) -> Result<Bytes> {
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("the request body did not arrive: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.len() + rest.len() + data.len() > MOST_BODY {
            return Err(too_large());
        }
        share.grow(data.len())?;
        // Most bodies are one piece, which need not be copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        rest.extend_from_slice(&std::mem::take(&mut first));
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// Reads the rest of a body that was not used, so that the client reads the answer and the
/// connection stays open. `false` if there was too much of it.
async fn drain(body: Incoming) -> bool {
    let mut body = Limited::new(body, MOST_BODY);
    let all = async {
        loop {
            match body.frame().await {
                None => return true,
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
            }
        }
    };
    tokio::time::timeout(DRAIN_TIMEOUT, all)
        .await
        .unwrap_or(false)
}

async fn resource(
    app: &Arc<App>,
    head: &Head,
    path: &ResourcePath,
    user: &User,
    flow: &Flow,
    body: &[u8],
) -> Result<Answer> {
    if let Some(answer) = reviews::answer(
        app,
        user,
        path,
        head.verb,
        head.header(header::CONTENT_TYPE),
        body,
    )? {
        return Ok(answer);
    }
    let kind = app
        .registry
        .kind(&path.group, &path.version, &path.resource)
        .ok_or_else(ApiError::no_such_path)?;
    if !path.leads_to(kind.info()) {
        return Err(ApiError::no_such_path());
    }
    let verb = head.verb.ok_or_else(|| match head.method.as_str() {
        "POST" if !path.name.is_empty() => post_to_an_object(path, kind.info()),
        _ => method_not_allowed(),
    })?;
    let pretty = head.query.flag("pretty");
    let accept = Accept::parse(
        head.header(header::ACCEPT),
        head.query.text("includeObject"),
        pretty,
    )?;
    let mut create = head.action();
    if let Action::Resource(asked) = &mut create {
        asked.verb = "create";
    }
    let rbac = || {
        app.rbac
            .read()
            .map_err(|_| ApiError::internal("the access rules are not readable"))
    };
    // A PUT or an apply of what does not exist creates it, which is a right of its own.
    let may_not_create = match verb {
        Verb::Patch | Verb::Update => {
            let decision = rbac()?.decide(user, &create);
            (!decision.allowed).then(|| create.forbidden(user, &decision))
        }
        _ => None,
    };
    let spread = match verb {
        Verb::Watch => random::number() % app.min_watch_timeout.as_secs().max(1),
        _ => 0,
    };
    let call = Call {
        registry: &app.registry,
        limits: &app.limits,
        flow,
        kind: Arc::clone(kind),
        path,
        query: &head.query,
        accept,
        content_type: head.header(header::CONTENT_TYPE),
        user_agent: head.header(header::USER_AGENT),
        body,
        may_not_create,
        guard: reviews::guard(app, user, path, verb),
        watch_timeout: app.min_watch_timeout + Duration::from_secs(spread),
    };
    let answer = call.answer(verb).await?;
    Ok(match kind.info().deprecation {
        Some(text) => answer.warn(vec![text.to_owned()]),
        None => answer,
    })
}

/// Is the server fit to be sent requests?
pub(crate) fn is_ready(app: &App) -> bool {
    app.ready.load(Ordering::Acquire)
}
