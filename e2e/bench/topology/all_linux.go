package topology

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// A round of All sends requests to some of the addresses that have not answered yet, all at once,
// so it is over in milliseconds. Then the client rests for restShare times as long, between these
// bounds, because the CPUs belong to the candidate: the client has a tenth of one. A new answer is
// seen at the next turn of its address, a quarter of a second later with a hundred addresses. The
// first address has a turn in each round. Requests one after the other, without such a rest, took
// half of one CPU, and a start nearly twice as long.
const (
	together     = 20
	restShare    = 9
	shortestRest = 5 * time.Millisecond
	longestRest  = patience
)

// All asks all addresses in rounds until each has answered, by accepting a connection, and returns when each did: nothing for those that did not
// before the limit. The first is asked most often. done ends it early, where there is no use in going on.
func (w *Network) All(ctx context.Context, to []netip.AddrPort, limit time.Duration, done func() error) (at []time.Time, err error) {
	at = make([]time.Time, len(to))
	deadline := time.Now().Add(limit)
	var turn turns
	err = w.Inside(func() error {
		for {
			began := time.Now()
			r := round{at: at}
			err := r.ask(turn.next(at), to, w.Source)
			rest := min(max(restShare*time.Since(began), shortestRest), longestRest)
			if err == nil {
				err = r.await(began.Add(rest))
			}
			r.end()
			if err := errors.Join(err, ctx.Err(), done()); err != nil {
				return err
			}
			if r.open() == 0 || time.Now().After(deadline) {
				return nil
			}
			time.Sleep(time.Until(began.Add(rest)))
		}
	})
	return at, err
}

// turns chooses the addresses of a round.
type turns struct{ last int }

// next are the first address, and some of the others in turn, of those that have not answered.
func (t *turns) next(at []time.Time) (out []int) {
	if len(at) > 0 && at[0].IsZero() {
		out = append(out, 0)
	}
	for range len(at) - 1 {
		if len(out) == together {
			break
		}
		t.last = t.last%(len(at)-1) + 1
		if at[t.last].IsZero() {
			out = append(out, t.last)
		}
	}
	return out
}

// round is one connection to each of some addresses.
type round struct {
	at  []time.Time // when each answered
	of  []int       // the address that each connection is to
	fds []unix.PollFd
}

// open counts the addresses that have not answered.
func (r *round) open() (n int) {
	for _, at := range r.at {
		if at.IsZero() {
			n++
		}
	}
	return n
}

// ask begins the connections, each from an address of its own.
func (r *round) ask(which []int, to []netip.AddrPort, source func() netip.Addr) error {
	for _, i := range which {
		addr := to[i]
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("ask %s: %w", addr, err)
		}
		r.of, r.fds = append(r.of, i), append(r.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT})
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source().As4()}); err != nil {
			return fmt.Errorf("ask %s: %w", addr, err)
		}
		// An error here means no answer, which poll reports.
		_ = unix.Connect(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()})
	}
	return nil
}

// await notes which addresses accept until all connections are decided, or it is time for another round.
func (r *round) await(until time.Time) error {
	for {
		left := time.Until(until)
		if len(r.fds) == 0 || left <= 0 {
			return nil
		}
		n, err := unix.Poll(r.fds, int(left.Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for answers: %w", err)
		case n == 0:
			return nil
		}
		r.decide(time.Now())
	}
}

// decide takes out the connections that are made, or refused.
func (r *round) decide(now time.Time) {
	kept := 0
	for i, p := range r.fds {
		if p.Revents == 0 {
			r.of[kept], r.fds[kept] = r.of[i], p
			kept++
			continue
		}
		if p.Revents&(unix.POLLERR|unix.POLLHUP) == 0 {
			r.at[r.of[i]] = now
		}
		hangUp(p)
	}
	r.of, r.fds = r.of[:kept], r.fds[:kept]
}

// end gives up what is not decided.
func (r *round) end() {
	for _, p := range r.fds {
		hangUp(p)
	}
	r.of, r.fds = nil, nil
}

// hangUp ends a connection with a reset: a closed one is kept for minutes on the way.
func hangUp(p unix.PollFd) {
	_ = unix.SetsockoptLinger(int(p.Fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(int(p.Fd))
}
