//! What the loop waits for: the watches of the API server, which it reads itself since to wake
//! somebody else for each change would cost more than the change; packets that come before their
//! Service, for the same reason; a bell, which who else has something for the loop rings; and the
//! time.

use super::{Door, Input};
use crate::objects::Kind;
use crate::watch::{News, Reading, Stream, Told};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll as Readiness, Token, Waker as Eventfd};
use portico_dataplane::doorstep::{Answer, Doorstep};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Pages of lists that wait to be taken.
const PAGES: usize = 2;
/// Read at once, at most.
const READ: usize = 16 << 10;
const BELL: Token = Token(usize::MAX);
const DOORSTEP: Token = Token(usize::MAX - 1);

pub struct Watches {
    readiness: Readiness,
    events: Events,
    bell: Waker,
    doorstep: Option<Doorstep>,
    told: mpsc::Receiver<Told>,
    /// Where a stream is is its token.
    streams: Vec<Option<Stream>>,
    /// Streams with more to read.
    unfinished: Vec<usize>,
    /// When the first stream ends by itself.
    overdue: Option<Instant>,
    news: Vec<News>,
    scratch: Box<[u8]>,
}

struct Bell(Eventfd);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Err(error) = self.0.wake() {
            tracing::error!(%error, "cannot wake the loop");
        }
    }
}

impl Watches {
    /// With the way to tell it of lists and streams.
    pub fn new(doorstep: Option<Doorstep>) -> io::Result<(Watches, mpsc::Sender<Told>)> {
        let readiness = Readiness::new()?;
        if let Some(doorstep) = &doorstep {
            readiness.registry().register(
                &mut SourceFd(&doorstep.as_raw_fd()),
                DOORSTEP,
                Interest::READABLE,
            )?;
        }
        let bell = Waker::from(Arc::new(Bell(Eventfd::new(readiness.registry(), BELL)?)));
        // Nobody listened until now.
        bell.wake_by_ref();
        let (tell, told) = mpsc::channel(PAGES);
        let watches = Watches {
            readiness,
            events: Events::with_capacity(16),
            bell,
            doorstep,
            told,
            streams: Vec::new(),
            unfinished: Vec::new(),
            overdue: None,
            news: Vec::new(),
            scratch: vec![0; READ].into(),
        };
        Ok((watches, tell))
    }

    /// Wakes the loop.
    pub fn bell(&self) -> Waker {
        self.bell.clone()
    }

    /// Wait until there is something to read, somebody comes, the bell rings, or the time has come.
    /// What the watches tell is added to the list, and then who came. Says whether the bell rang.
    pub fn wait(&mut self, deadline: Option<Instant>, inputs: &mut Vec<Input>) -> io::Result<bool> {
        let deadline = deadline.into_iter().chain(self.overdue).min();
        let rest = match self.unfinished.is_empty() {
            true => deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
            false => Some(Duration::ZERO),
        };
        self.events.clear();
        match self.readiness.poll(&mut self.events, rest) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = Instant::now();
        let (rang, visited) = self.note_readable();
        std::mem::take(&mut self.unfinished)
            .into_iter()
            .for_each(|number| self.read(number, now));
        if self.overdue.is_some_and(|overdue| overdue <= now) {
            (0..self.streams.len()).for_each(|number| self.read(number, now));
        }
        if rang {
            self.take_told(now)?;
        }
        inputs.extend(self.news.drain(..).filter_map(|news| input(news, now)));
        if visited {
            self.meet_visitors(inputs);
        }
        Ok(rang)
    }

    /// Whether the bell rang, and whether somebody came.
    fn note_readable(&mut self) -> (bool, bool) {
        let Watches {
            events,
            streams,
            unfinished,
            ..
        } = self;
        let is_last = |event: &Event| event.is_read_closed() || event.is_error();
        let (mut rang, mut visited) = (false, false);
        for event in events.iter() {
            let Token(number) = event.token();
            rang |= event.token() == BELL;
            visited |= event.token() == DOORSTEP;
            if let Some(stream) = streams.get_mut(number).and_then(Option::as_mut) {
                stream.is_readable(is_last(event));
                if !unfinished.contains(&number) {
                    unfinished.push(number);
                }
            }
        }
        (rang, visited)
    }

    /// The kernel tells anew when somebody else comes.
    fn meet_visitors(&self, inputs: &mut Vec<Input>) {
        match self
            .doorstep
            .as_ref()
            .map_or(Ok(Vec::new()), Doorstep::visitors)
        {
            Ok(visitors) => inputs.extend(visitors.into_iter().map(Input::Early)),
            Err(error) => tracing::warn!(%error, "cannot tell who came before its Service"),
        }
    }

    fn read(&mut self, number: usize, now: Instant) {
        let Some(place) = self.streams.get_mut(number) else {
            return;
        };
        let Some(stream) = place else { return };
        match stream.read(now, &mut self.scratch, &mut self.news) {
            Reading::Done => {}
            Reading::Unfinished => self.unfinished.push(number),
            Reading::Ended => {
                *place = None;
                self.set_overdue();
            }
        }
    }

    fn set_overdue(&mut self) {
        self.overdue = self.streams.iter().flatten().map(Stream::ends_by).min();
    }

    fn take_told(&mut self, now: Instant) -> io::Result<()> {
        let bell = self.bell();
        for _ in 0..PAGES {
            match self.told.poll_recv(&mut Context::from_waker(&bell)) {
                Poll::Ready(Some(Told::Page(page))) => {
                    page.read(&mut self.news);
                }
                Poll::Ready(Some(Told::News(mut news))) => self.news.append(&mut news),
                Poll::Ready(Some(Told::Stream(stream))) => self.add(stream, now)?,
                Poll::Ready(None) | Poll::Pending => return Ok(()),
            }
        }
        // Others want to be heard, too.
        bell.wake();
        Ok(())
    }

    /// Something of it may have come in already.
    fn add(&mut self, stream: Stream, now: Instant) -> io::Result<()> {
        let number = self
            .streams
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.streams.len());
        self.readiness.registry().register(
            &mut SourceFd(&stream.as_raw_fd()),
            Token(number),
            Interest::READABLE,
        )?;
        match self.streams.get_mut(number) {
            Some(place) => *place = Some(stream),
            None => self.streams.push(Some(stream)),
        }
        self.set_overdue();
        self.read(number, now);
        Ok(())
    }
}

impl Door for Doorstep {
    fn answer(&self, answers: Vec<(u32, Answer)>) {
        if let Err(error) = Doorstep::answer(self, answers) {
            tracing::warn!(%error, "cannot answer packets that came before their Service");
        }
    }
}

/// How far other kinds are is of no interest.
fn input(news: News, heard: Instant) -> Option<Input> {
    match news {
        News::Apply(object) => Some(Input::Apply(object, heard)),
        News::Delete(name) => Some(Input::Delete(name, heard)),
        News::Listed(kind, names) => Some(Input::Listed(kind, names)),
        News::Reached(kind @ (Kind::Service | Kind::Slice), version) => {
            Some(Input::Reached(kind, version))
        }
        News::Reached(..) => None,
    }
}
