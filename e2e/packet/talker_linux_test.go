package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// talker is a client with one UDP socket that never pauses. It does not wait for answers, and goes on when it is refused. It, and
// the server that echoes, block in system calls and send in bursts: under emulation a wake-up costs more than a packet.
type talker struct {
	name  string
	to    netip.AddrPort
	rate  int // datagrams a second, if the machine can
	fd    int
	ended atomic.Bool
	once  sync.Once
	done  sync.WaitGroup

	mu      sync.Mutex
	sent    []time.Time
	answers []heard
}

// heard is an answer: when it came, and by whom.
type heard struct {
	at time.Time
	by string
}

// talkBurst is between two bursts.
const talkBurst = 10 * time.Millisecond

// talk starts to send from the pod's address of that family, until the talker or the test ends.
func (p *pod) talk(t *testing.T, to string, rate int) *talker {
	t.Helper()
	k := &talker{name: p.name + " to " + to, to: netip.MustParseAddrPort(to), rate: rate}
	k.fd = p.datagrams(t, netip.AddrPortFrom(p.source(k.to.Addr().String()), 0))
	p.must(t, unix.Connect(k.fd, sockaddr(k.to)))
	k.done.Go(k.send)
	k.done.Go(k.listen)
	t.Cleanup(k.end)
	return k
}

// datagrams opens a UDP socket in the namespace. A read of it waits a little and not for ever, so that its reader sees when it is
// to end.
func (s *space) datagrams(t *testing.T, at netip.AddrPort) (fd int) {
	t.Helper()
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	s.must(t, s.do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	s.must(t, unix.Bind(fd, sockaddr(at)))
	s.must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}))
	return fd
}

func (k *talker) send() {
	tick := time.NewTicker(talkBurst)
	defer tick.Stop()
	start, count := time.Now(), 0
	for range tick.C {
		if k.ended.Load() {
			return
		}
		due := int(time.Since(start).Seconds() * float64(k.rate))
		n := min(due-count, max(1, k.rate/20)) // a late sender does not send all of it at once
		count = due
		now := time.Now()
		k.mu.Lock()
		k.sent = append(k.sent, slices.Repeat([]time.Time{now}, n)...)
		k.mu.Unlock()
		for range n {
			_, _ = unix.Write(k.fd, []byte("?")) // an error is that of a datagram before
		}
	}
}

func (k *talker) listen() {
	b := make([]byte, 64)
	for !k.ended.Load() {
		n, err := unix.Read(k.fd, b)
		if err != nil {
			continue // no talker is there just now
		}
		k.mu.Lock()
		k.answers = append(k.answers, heard{time.Now(), string(b[:n])})
		k.mu.Unlock()
	}
}

func (k *talker) end() {
	k.once.Do(func() {
		k.ended.Store(true)
		k.done.Wait()
		_ = unix.Close(k.fd)
	})
}

// family is 4 or 6.
func (k *talker) family() int {
	if k.to.Addr().Is4() {
		return 4
	}
	return 6
}

// local is where it sends from.
func (k *talker) local(t *testing.T) netip.AddrPort {
	t.Helper()
	at, err := unix.Getsockname(k.fd)
	if err != nil {
		t.Fatal(err)
	}
	if six, ok := at.(*unix.SockaddrInet6); ok {
		return netip.AddrPortFrom(netip.AddrFrom16(six.Addr), uint16(six.Port))
	}
	four := at.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), uint16(four.Port))
}

// await waits until one has answered so often from now on.
func (k *talker) await(t *testing.T, by string, n int) {
	t.Helper()
	k.mu.Lock()
	start := len(k.answers)
	k.mu.Unlock()
	poll(t, fmt.Sprintf("%s to be answered by %s", k.name, by), settleTimeout, func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		got := map[string]int{}
		for _, a := range k.answers[start:] {
			got[a.by]++
		}
		if got[by] < n {
			return fmt.Errorf("%d datagrams sent, answers %v, want %d", len(k.sent), got, n)
		}
		return nil
	})
}

// count is how many were sent and answered so far.
func (k *talker) count() (sent, answered int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.sent), len(k.answers)
}

// first is when one answered first after a moment.
func (k *talker) first(from time.Time, by string) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.answers {
		if a.by == by && a.at.After(from) {
			return a.at
		}
	}
	return time.Time{}
}

// longest is the most that was waited for an answer of one, from a moment to the last of its answers: in datagrams that were sent
// meanwhile, and in time.
func (k *talker) longest(from time.Time, by string) (datagrams int, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sentBy := func(at time.Time) int {
		i, _ := slices.BinarySearchFunc(k.sent, at, time.Time.Compare)
		return i
	}
	last := from
	for _, a := range k.answers {
		if a.by != by || !a.at.After(from) {
			continue
		}
		datagrams, wait = max(datagrams, sentBy(a.at)-sentBy(last)), max(wait, a.at.Sub(last))
		last = a.at
	}
	return datagrams, wait
}

// echo answers each datagram to port 8080 of the pod's addresses with the pod's name.
func (p *pod) echo(t *testing.T) {
	t.Helper()
	var ended atomic.Bool
	var running sync.WaitGroup
	for _, family := range families {
		fd := p.datagrams(t, netip.MustParseAddrPort(hostPort(p.addr.of(family), 8080)))
		running.Go(func() {
			defer unix.Close(fd)
			b := make([]byte, 64)
			for !ended.Load() {
				if _, from, err := unix.Recvfrom(fd, b, 0); err == nil {
					_ = unix.Sendto(fd, []byte(p.name), 0, from) // a client that is gone gets no answer
				}
			}
		})
	}
	t.Cleanup(func() { ended.Store(true); running.Wait() })
}
