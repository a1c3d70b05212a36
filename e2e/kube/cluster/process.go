package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// graceful bounds how long a program may take to end by itself.
const graceful = 20 * time.Second

// process is a program that can be started again and again with the same arguments. It is not for concurrent use.
type process struct {
	path, log string
	args      []string

	cmd  *exec.Cmd     // nil while it does not run
	done chan struct{} // closed when cmd has ended
}

func (p *process) name() string { return filepath.Base(p.path) }

// start runs the program; its output is added to the log.
func (p *process) start() error {
	if p.cmd != nil {
		return fmt.Errorf("start %s: it was started already", p.name())
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	defer log.Close() // the program has its own descriptor
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	if err := startLasting(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.done)
	return nil
}

// lasting is a thread that ends with this program and not before.
var lasting = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// startLasting starts a program whose end is that of the thread which starts it: another thread may serve a test that enters a
// namespace next, and ends with that.
func startLasting(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	lasting() <- func() { started <- cmd.Start() }
	return <-started
}

// end sends a signal and returns when the program is gone, killing it when it takes too long. Ending what does not run is fine.
func (p *process) end(sig os.Signal) error {
	if p.cmd == nil {
		return nil
	}
	err := errors.Join(p.signal(sig), p.signal(syscall.SIGCONT)) // one that was paused has to go on in order to end
	limit := time.NewTimer(graceful)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		err = errors.Join(fmt.Errorf("%s did not end within %s of %s%s", p.name(), graceful, sig, p.lastWords()), p.signal(syscall.SIGKILL))
		<-p.done
	}
	p.cmd = nil
	return err
}

// signal sends a signal; a program that has ended already needs none.
func (p *process) signal(sig os.Signal) error {
	if p.cmd == nil {
		return fmt.Errorf("signal %s: it does not run", p.name())
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", sig, p.name(), err)
	}
	return nil
}

// pid is that of the running program, 0 without one.
func (p *process) pid() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// ended is closed when the running program ends; without one it is nil and blocks for ever.
func (p *process) ended() <-chan struct{} {
	if p.cmd == nil {
		return nil
	}
	return p.done
}

// lastWords returns the end of the log on lines of its own, for an error.
func (p *process) lastWords() string {
	const lines, size = 30, 16 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	end := strings.Split(strings.TrimSpace(string(text[max(0, len(text)-size):])), "\n")
	return fmt.Sprintf("\nthe end of %s:\n%s", p.log, strings.Join(end[max(0, len(end)-lines):], "\n"))
}
