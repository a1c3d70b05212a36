package load

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// engine holds every socket of a run. One thread at a time may use it.
type engine struct {
	Profile

	epoll     int
	to        unix.Sockaddr
	report    Report              // without Backends, see names
	names     map[string]*answers // by name: no new string for each answer
	now       time.Duration       // of this turn, since the beginning
	due       int                 // new connections whose time has come, started or not
	asks      int                 // requests on long connections whose time has come
	pending   int                 // sockets that owe an answer
	finishing bool

	slots     []*conn // the key of a socket's events is its slot
	free      []int32
	long      []*conn // those held open, cut or not, by their place in report.Long.Conns
	deadlines queue
	requests  uint64 // numbered, so that a deadline knows whether its request is still open
	turns     []int  // next source port of each client, counted from the first
}

// answers counts those of one backend to new connections.
type answers struct {
	name string
	n    int
}

// conn is a socket.
type conn struct {
	fd      int // -1 when closed
	slot    int32
	long    int // its place among the long connections, -1 for a new one
	asked   bool
	pending bool          // owes an answer; before it was asked, to the dial
	by      *answers      // the name of the backend, from the beginning of the first answer on
	began   time.Duration // start of the request, or for the first the dial
	request uint64
}

func newEngine(p Profile) (*engine, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open epoll: %w", err)
	}
	return &engine{
		Profile: p, epoll: epoll, to: sockaddr(p.To), names: map[string]*answers{}, turns: make([]int, max(1, len(p.Sources))),
		report: Report{
			Began: time.Now(), Failed: map[backend.Failure]int{}, First: map[backend.Failure]Incident{},
			Long: Long{Failed: map[backend.Failure]int{}},
		},
	}, nil
}

// told is the report as it stands, which does not change any more.
func (e *engine) told() Report {
	r := e.report.clone()
	r.Backends = map[string]int{}
	for name, by := range e.names {
		if by.n > 0 {
			r.Backends[name] = by.n
		}
	}
	return r
}

// close ends what is open, in order.
func (e *engine) close() {
	for _, c := range e.long {
		e.drop(c)
	}
	unix.Close(e.epoll)
}

// longestPause is how soon the end of a run is noticed.
const longestPause = 50 * time.Millisecond

// pause is how long to wait for events, in ms: until the next start or request, and for deadlines a little later is soon enough.
func (e *engine) pause() int {
	next := longestPause
	now := time.Since(e.report.Began)
	if e.New > 0 && !e.finishing {
		next = min(next, time.Duration(float64(e.due)/e.New*float64(time.Second))-now)
	}
	if e.Long > 0 && !e.finishing {
		next = min(next, e.Every*time.Duration(e.asks)/time.Duration(e.Long)-now)
		if len(e.long) < e.Long {
			next = 0
		}
	}
	return max(0, int((next + time.Millisecond - 1).Milliseconds()))
}

// burst bounds the starts of one turn, so that events are not kept waiting.
const burst = 32

// startDue starts the new connections whose time has come.
func (e *engine) startDue() {
	want := int(e.now.Seconds()*e.New) + 1
	if e.New == 0 {
		want = 0
	}
	for range burst {
		if e.due >= want {
			return
		}
		e.report.Late = max(e.report.Late, e.now-time.Duration(float64(e.due)/e.New*float64(time.Second)))
		e.due++
		e.start()
	}
}

func (e *engine) start() {
	c, err := e.dial(e.due, true)
	if errors.Is(err, errNoPort) {
		e.report.NoPort++
		return
	}
	e.report.Started++
	e.second(e.now).Started++
	if err != nil {
		e.failed(c, err)
	}
}

// openLong opens some of the long connections that were not opened yet.
func (e *engine) openLong() {
	for range min(burst, e.Long-len(e.long)) {
		c, err := e.dial(len(e.long), false)
		c.long = len(e.long)
		e.long = append(e.long, c)
		e.report.Long.Conns = append(e.report.Long.Conns, Conn{})
		if err != nil {
			e.failed(c, err)
			continue
		}
		e.report.Long.Conns[c.long].Client = localAddr(c.fd)
	}
}

// askDue makes the requests whose time has come. Each long connection has its turn; one that owes an answer is passed over.
func (e *engine) askDue() {
	if e.Long == 0 || len(e.long) < e.Long {
		return
	}
	want := int(float64(e.now)/float64(e.Every)*float64(e.Long)) + 1
	e.asks = max(e.asks, want-e.Long) // after a pause no connection gets two requests at once
	for ; e.asks < want; e.asks++ {
		e.ask(e.long[e.asks%e.Long])
	}
}

// ask makes a request on an open connection that is idle.
func (e *engine) ask(c *conn) {
	if c.fd < 0 || c.pending {
		return
	}
	e.expect(c)
	e.send(c)
}

// expect puts a request of the connection on the list of those that owe an answer.
func (e *engine) expect(c *conn) {
	e.requests++
	c.request, c.began, c.pending = e.requests, e.now, true
	e.pending++
	e.deadlines.push(deadline{e.now + e.Timeout, c.slot, c.request})
}

// expire fails what is not answered in time.
func (e *engine) expire() {
	for {
		d, ok := e.deadlines.popUntil(e.now)
		if !ok {
			return
		}
		if c := e.slots[d.slot]; c != nil && c.pending && c.request == d.request {
			e.failed(c, os.ErrDeadlineExceeded)
		}
	}
}

// finish asks each long connection that lives a last time; those not opened yet stay so.
func (e *engine) finish() {
	if e.finishing {
		return
	}
	e.finishing = true
	for _, c := range e.long {
		e.ask(c)
	}
}

// second is the row of a moment.
func (e *engine) second(at time.Duration) *Second {
	i := int(at / time.Second)
	for len(e.report.Series) <= i {
		e.report.Series = append(e.report.Series, Second{})
	}
	return &e.report.Series[i]
}

// deadline is when a request has to be answered.
type deadline struct {
	at      time.Duration
	slot    int32
	request uint64
}

// queue holds deadlines in their order, which is that of their requests: all have the same time.
type queue struct {
	list []deadline
	head int
}

func (q *queue) push(d deadline) {
	if q.head > len(q.list)/2 && q.head > batch {
		q.list = append(q.list[:0], q.list[q.head:]...)
		q.head = 0
	}
	q.list = append(q.list, d)
}

// popUntil takes the first, if it is over.
func (q *queue) popUntil(now time.Duration) (deadline, bool) {
	if q.head == len(q.list) || q.list[q.head].at > now {
		return deadline{}, false
	}
	q.head++
	return q.list[q.head-1], true
}
