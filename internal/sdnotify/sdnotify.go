package sdnotify

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

const (
	// pollReady is how often Run asks whether the process is ready.
	pollReady = 250 * time.Millisecond
	// extendBy is the time that a start may take from one message on. Run sends one at each
	// third of it, so a start that is alive never exceeds TimeoutStartSec.
	extendBy = 30 * time.Second
	// sendWithin bounds one message: systemd may be stopped, with its queue full.
	sendWithin = time.Second
)

// State is the state that the process reports.
type State struct {
	Ready bool // systemd may start the units that wait for this one; asked until it is true
	Alive bool // the watchdog may get a message
}

// Notifier sends messages to one socket. The nil Notifier sends nothing.
type Notifier struct {
	log      *zap.Logger
	addr     *net.UnixAddr
	watchdog time.Duration // 0: systemd has no watchdog for this process
	failing  bool          // the latest message was not sent
}

// New reads the environment of the process pid by getenv. It returns nil when no supervisor
// wants messages.
func New(log *zap.Logger, getenv func(string) string, pid int) *Notifier {
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		log.Warn("NOTIFY_SOCKET is no unix socket: the supervisor gets no messages", zap.String("socket", path))
		return nil
	}
	n := &Notifier{log: log, addr: &net.UnixAddr{Name: path, Net: "unixgram"}}
	interval, err := watchdog(getenv, pid)
	if err != nil {
		log.Warn("the supervisor's watchdog gets no messages", zap.Error(err))
	}
	n.watchdog = interval
	return n
}

// watchdog returns the longest silence that systemd accepts of the process, 0 for any.
func watchdog(getenv func(string) string, pid int) (time.Duration, error) {
	usec, owner := getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID")
	if usec == "" || owner != "" && owner != strconv.Itoa(pid) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(24*time.Hour/time.Microsecond) {
		return 0, fmt.Errorf("WATCHDOG_USEC: %q is not a time of up to a day in microseconds", usec)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// Run sends messages until ctx ends, and then the last one. It returns nil.
func (n *Notifier) Run(ctx context.Context, state func() State) error {
	if n == nil {
		return nil
	}
	defer n.send("STOPPING=1")
	if !n.start(ctx, state) {
		return nil
	}
	n.send("READY=1")
	if n.watchdog == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(n.watchdog / 3)
	defer tick.Stop()
	for {
		if state().Alive {
			n.send("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// start blocks until the process is ready, and reports false when ctx ends before. Meanwhile
// it extends the time that systemd grants for a start, as long as the process is alive.
func (n *Notifier) start(ctx context.Context, state func() State) bool {
	tick := time.NewTicker(pollReady)
	defer tick.Stop()
	var extended time.Time
	for {
		now := state()
		if now.Ready {
			return true
		}
		if now.Alive && time.Since(extended) >= extendBy/3 {
			extended = time.Now()
			n.send("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(extendBy.Microseconds(), 10))
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// send sends one message, and logs the first of several that fail.
func (n *Notifier) send(message string) {
	err := n.write(message)
	if err != nil && !n.failing {
		n.log.Warn("cannot send messages to the supervisor", zap.String("message", message), zap.Stringer("socket", n.addr), zap.Error(err))
	}
	n.failing = err != nil
}

// write opens a socket for each message, so it outlives a restart of systemd.
func (n *Notifier) write(message string) error {
	conn, err := net.DialUnix(n.addr.Net, nil, n.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}
