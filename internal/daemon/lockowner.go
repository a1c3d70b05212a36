package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// LockName is an abstract unix socket: each network namespace has its own such names (unix(7)). Tests have a name of
// their own, because they share the namespace of the machine.
var LockName = "@kube-ipvs.agent"

// An owner is the process that has LockName, as it describes itself.
type owner struct {
	Verb    string `json:"verb"` // "run", "run --init-only" or "cleanup"
	PID     int    `json:"pid"`  // in its own pid namespace
	Version string `json:"version"`
	RunDir  string `json:"runDir"`
}

// A nameServer has LockName and answers each client with the owner.
type nameServer struct {
	listener net.Listener
	done     chan struct{} // closed when serve has returned
}

// answerSoon bounds one answer, and one question.
const answerSoon = time.Second

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 10

func serveName(l net.Listener, o owner) *nameServer {
	s := &nameServer{l, make(chan struct{})}
	answer, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and a number
	}
	go s.serve(answer)
	return s
}

// serve answers one client after the other: an answer fits into the buffer of a new socket, so that no client delays it.
func (s *nameServer) serve(answer []byte) {
	defer close(s.done)
	for {
		conn, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as no file descriptor left
			time.Sleep(answerSoon)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(answerSoon))
		_, _ = conn.Write(answer) // the client may be gone
		_ = conn.Close()
	}
}

// Close frees the name.
func (s *nameServer) Close() {
	_ = s.listener.Close()
	<-s.done
}

// askOwner returns an error that names the process with LockName: ErrRunning where that is root's or our own user's,
// because any other process may say what it likes.
func askOwner() error {
	conn, err := net.DialTimeout("unix", LockName, answerSoon)
	if err != nil {
		return fmt.Errorf("the process that holds the lock does not answer: %w", err)
	}
	defer conn.Close()
	unix, is := conn.(*net.UnixConn)
	if !is {
		return fmt.Errorf("%T is no unix socket", conn)
	}
	pid, uid, err := peer(unix)
	if err != nil {
		return fmt.Errorf("ask the kernel for the process that holds the lock: %w", err)
	}
	if uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("the process that holds the lock is not kube-ipvs: it runs as user %d (%s)", uid, process(pid))
	}
	_ = conn.SetDeadline(time.Now().Add(answerSoon))
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	var o owner
	if err != nil || json.Unmarshal(answer, &o) != nil || o.Verb == "" {
		return runningError{fmt.Sprintf("an unidentified process (%s)", process(pid))}
	}
	return runningError{o.seenAs(pid)}
}

// seenAs is the owner in words; pid is its number in the pid namespace of this process, 0 if it has none there.
func (o owner) seenAs(pid int) string {
	seen := process(pid)
	if pid <= 0 {
		seen = fmt.Sprintf("pid %d of another pid namespace", o.PID)
	}
	return strings.Join([]string{"kube-ipvs", printable.String(o.Verb),
		fmt.Sprintf("(%s, version %s, --run-dir %s)", seen, printable.String(o.Version), printable.String(o.RunDir))}, " ")
}

func process(pid int) string {
	if pid <= 0 {
		return "of another pid namespace"
	}
	return fmt.Sprintf("pid %d", pid)
}

// runningError is ErrRunning with the name of the process.
type runningError struct{ who string }

// Error implements error.
func (e runningError) Error() string { return e.who + " runs in this network namespace" }

// Is makes it ErrRunning.
func (runningError) Is(target error) bool { return target == ErrRunning }
