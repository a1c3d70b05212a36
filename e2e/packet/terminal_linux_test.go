package packet

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// terminal is a pseudo terminal with a program on it.
type terminal struct {
	person  *os.File // the side of the person: keys in, screen out
	program *os.File // the side of the program
	process *exec.Cmd

	mu   sync.Mutex
	seen bytes.Buffer
}

// newTerminal opens a terminal of some size.
func (s *space) newTerminal(t *testing.T, rows, columns uint16) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	s.must(t, err)
	t.Cleanup(func() { _ = person.Close() })
	s.must(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	s.must(t, err)
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	s.must(t, err)
	t.Cleanup(func() { _ = other.Close() })
	term := &terminal{person: person, program: other}
	s.must(t, term.resize(rows, columns))
	go term.watch()
	t.Cleanup(func() {
		if term.process != nil {
			_ = term.process.Process.Kill()
		}
	})
	return term
}

func (term *terminal) resize(rows, columns uint16) error {
	return unix.IoctlSetWinsize(int(term.person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
}

// run starts a program that has the terminal for its own.
func (term *terminal) run(on *space, name string, args ...string) error {
	term.process = exec.Command(name, args...)
	term.process.Env = append(os.Environ(), "TERM=xterm-256color")
	term.process.Stdin, term.process.Stdout, term.process.Stderr = term.program, term.program, term.program
	term.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return on.do(term.process.Start)
}

func (term *terminal) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := term.person.Read(buf)
		if err != nil {
			return
		}
		term.mu.Lock()
		term.seen.Write(buf[:n])
		term.mu.Unlock()
	}
}

func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

// draws waits until all of what is wanted has been drawn since something was done.
func (term *terminal) draws(t *testing.T, what string, do func() error, wants ...string) {
	t.Helper()
	before := len(term.screen())
	if err := do(); err != nil {
		t.Fatal(err)
	}
	poll(t, fmt.Sprintf("%q on the terminal after %s", wants, what), time.Minute, func() error {
		drawn := term.screen()[before:]
		for _, want := range wants {
			if !strings.Contains(drawn, want) {
				return fmt.Errorf("drawn since: %q", drawn)
			}
		}
		return nil
	})
}

// presses types keys and waits for what they draw.
func (term *terminal) presses(t *testing.T, keys string, wants ...string) {
	t.Helper()
	term.draws(t, fmt.Sprintf("keys %q", keys), func() error { _, err := term.person.WriteString(keys); return err }, wants...)
}

// TestTopOnATerminal: the screen of a user who runs top, presses keys and leaves; afterwards the
// terminal is as before.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, w.shop(t)...)
	n.start(t)
	busy := w.visitor.load(t, load.Profile{To: netip.MustParseAddrPort("10.96.0.20:80"), Sources: []netip.Addr{w.visitor.source("10.96.0.20")}, New: 5, Long: 3, Every: time.Second})

	term := w.node.newTerminal(t, 24, 110)
	was, err := unix.IoctlGetTermios(int(term.program.Fd()), unix.TCGETS)
	w.node.must(t, err)
	term.draws(t, "the start", func() error { return term.run(w.node.space, program(), append([]string{"top"}, n.runDir()...)...) },
		"\x1b[?1049h", "SERVICE", "test/cart", "test/zoo") // on another screen than that of the shell
	term.presses(t, "n")
	term.presses(t, "/cart\r")
	term.presses(t, "\r", "10.244.0.1:8080")
	term.presses(t, "\x1b", "SERVICE")
	term.draws(t, "another size", func() error {
		return errors.Join(term.resize(12, 80), term.process.Process.Signal(unix.SIGWINCH))
	}, "test/cart") // all is drawn again
	term.presses(t, "q", "\x1b[?1049l") // the shell's screen again
	ended := make(chan error, 1)
	go func() { ended <- term.process.Wait() }()
	select {
	case err := <-ended:
		w.node.must(t, err)
	case <-time.After(time.Minute):
		t.Fatal(errors.New("top goes on after q"))
	}
	is, err := unix.IoctlGetTermios(int(term.program.Fd()), unix.TCGETS)
	w.node.must(t, err)
	if *is != *was {
		t.Errorf("the terminal is %+v after top, and was %+v", is, was)
	}
	if got, err := busy.Stop(); err != nil || got.Failures() > 0 {
		t.Errorf("clients meanwhile: %v\n%s", err, report(got))
	}
}
