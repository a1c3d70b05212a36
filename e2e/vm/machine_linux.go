package vm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// qemuProgram is the emulator of the only architecture supported so far.
const qemuProgram = "qemu-system-x86_64"

// powerOffLimit bounds the time between the exit report and QEMU's end; everything of value is on the host by then.
const powerOffLimit = 10 * time.Second

// machine is one running QEMU, or User-mode Linux, with the readers of its three pipes.
type machine struct {
	program string // the program that runs the guest
	cmd     *exec.Cmd
	start   func() error
	tidy    func() // called when the guest has ended
	started time.Time
	ended   chan struct{} // closed when QEMU is gone and reaped
	reports chan report   // closed when the report pipe ends
	readers sync.WaitGroup
	console tail // kernel messages
	stderr  tail // the messages of QEMU itself
}

// startMachine starts a guest. It is started and awaited on one thread of its own, because the kernel ties "die with your parent" to
// the parent's thread.
func startMachine(o Options, kernel Kernel, initrd *os.File, accel string, log *progress) (*machine, error) {
	m := &machine{ended: make(chan struct{}), reports: make(chan report, 8)}
	if err := m.plan(o, kernel, accel); err != nil {
		return nil, err
	}
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = dieWithRunner()
	m.cmd.ExtraFiles = []*os.File{initrd}

	console := io.Writer(&m.console)
	if o.Verbose {
		console = io.MultiWriter(&m.console, log)
	}
	copyTo := func(w io.Writer) func(io.Reader) { return func(r io.Reader) { drain(w, r) } }
	for _, read := range []func(io.Reader){copyTo(console), copyTo(o.Stdout), m.readReports} {
		if err := m.pipe(read); err != nil {
			m.closeWriters()
			return nil, err
		}
	}
	started := make(chan error)
	go m.supervise(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s (run e2e/install.sh vm): %w", m.program, err)
	}
	return m, nil
}

// plan fills in what is started, and how.
func (m *machine) plan(o Options, kernel Kernel, accel string) error {
	if accel == accelUML {
		return m.planUML(o, kernel)
	}
	m.program, m.tidy = qemuProgram, func() {}
	m.cmd = exec.Command(m.program, qemuArgs(o, kernel, accel)...)
	m.start = m.cmd.Start
	return nil
}

// pipe hands QEMU the writing end of a new pipe and reads the other until it ends.
func (m *machine) pipe(read func(io.Reader)) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create a pipe for %s: %w", m.program, err)
	}
	m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, w)
	m.readers.Go(func() {
		defer r.Close()
		read(r)
	})
	return nil
}

// drain copies until the pipe ends. A writer that fails is given up, the pipe is not: a guest that cannot write would hang.
func drain(w io.Writer, r io.Reader) {
	if _, err := io.Copy(w, r); err != nil {
		_, _ = io.Copy(io.Discard, r)
	}
}

// closeWriters drops our copies of the pipes' writing ends; QEMU's are the only ones then, and the readers see its end.
func (m *machine) closeWriters() {
	for _, file := range m.cmd.ExtraFiles[1:] {
		file.Close()
	}
}

func (m *machine) supervise(started chan<- error) {
	runtime.LockOSThread() // for good: the thread may be in another namespace by now, and ends with this goroutine
	defer close(m.ended)
	defer m.tidy()
	m.started = time.Now()
	err := m.start()
	m.closeWriters()
	started <- err
	if err == nil {
		_ = m.cmd.Wait() // its own status is not that of the guest
	}
}

func (m *machine) readReports(r io.Reader) {
	defer close(m.reports)
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		parsed, err := parseReport(scanner.Text())
		if err != nil {
			fmt.Fprintln(&m.console, err)
			continue
		}
		m.reports <- parsed
	}
}

// follow waits for the guest to report in within limit, then for its exit status. It returns early when ctx ends or QEMU does.
func (m *machine) follow(ctx context.Context, limit time.Duration, up func(release string, took time.Duration)) (int, error) {
	watchdog := time.NewTimer(limit)
	defer watchdog.Stop()
	booted := false
	for {
		select {
		case <-ctx.Done():
			return StatusBroken, fmt.Errorf("run stopped: %w", context.Cause(ctx))
		case <-watchdog.C:
			return StatusBroken, fmt.Errorf("%w within %s", errNoBoot, limit)
		case got, open := <-m.reports:
			switch {
			case !open && booted:
				return StatusBroken, fmt.Errorf("the guest ended without an exit status")
			case !open:
				return StatusBroken, fmt.Errorf("%w: %s ended", errNoBoot, m.program)
			case got.exited:
				m.awaitPowerOff()
				return got.status, nil
			}
			booted = true
			watchdog.Stop()
			up(got.up, time.Since(m.started))
		}
	}
}

func (m *machine) awaitPowerOff() {
	select {
	case <-m.ended:
	case <-time.After(powerOffLimit):
	}
}

// stop ends QEMU if it still runs, and returns when it is reaped and all its output is delivered.
func (m *machine) stop() {
	_ = m.cmd.Process.Kill()
	go func() {
		for range m.reports { // no receiver is left, but the reader must come to its end
		}
	}()
	<-m.ended
	m.readers.Wait()
}

// lastWords is what to look at when a guest failed.
func (m *machine) lastWords() string {
	text := "--- end of the console ---\n" + m.console.String()
	if complaint := m.stderr.String(); complaint != "" {
		text += "\n--- " + m.program + " ---\n" + complaint
	}
	return text
}
