package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// How processes are counted.
const (
	ByEvents  = "the kernel's process events: those that the candidate launched, without threads"
	ByMachine = "/proc/stat: all of the machine's, with threads"
)

// Meter counts what the programs cost that it starts.
type Meter struct {
	launches *launches // nil where the kernel does not tell
	why      error
}

// New is a meter that counts processes as exactly as this kernel can.
func New() *Meter {
	m := &Meter{}
	m.launches, m.why = newLaunches()
	return m
}

// LaunchesBy says how processes are counted.
func (m *Meter) LaunchesBy() string {
	if m.launches == nil {
		return ByMachine + " (" + m.why.Error() + ")"
	}
	return ByEvents
}

// Close ends the counting.
func (m *Meter) Close() {
	if m.launches != nil {
		m.launches.close()
	}
}

// Subject is a program that runs, with all that it launched.
type Subject struct {
	meter   *Meter
	group   *group
	pid     int
	began   time.Time
	machine machine // when it began
	ended   chan struct{}
	err     error // how it ended; to be read when ended
}

// Start runs a command under the meter. within is called to start it, for that may have to happen on a certain thread.
func (m *Meter) Start(cmd *exec.Cmd, within func(func() error) error) (*Subject, error) {
	g, err := newGroup()
	if err != nil {
		return nil, err
	}
	g.adopt(cmd)
	s := &Subject{meter: m, group: g, ended: make(chan struct{})}
	if s.machine, err = readMachine(); err != nil {
		return nil, errors.Join(err, g.close())
	}
	s.began = time.Now()
	if err := within(cmd.Start); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), g.close())
	}
	s.pid = cmd.Process.Pid
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// Began is when the command was launched.
func (s *Subject) Began() time.Time { return s.began }

// ErrEnded says that the program is not there any more.
var ErrEnded = errors.New("the candidate ended by itself")

var errNoStatus = errors.New("exit status 0")

// Alive fails with ErrEnded when the program has ended.
func (s *Subject) Alive() error {
	select {
	case <-s.ended:
		return fmt.Errorf("%w: %w", ErrEnded, cmp.Or(s.err, errNoStatus))
	default:
		return nil
	}
}

// Cost is what was used since the beginning.
func (s *Subject) Cost() (cell.Cost, error) {
	user, system, err := s.group.cpu()
	if err != nil {
		return cell.Cost{}, fmt.Errorf("read the CPU time: %w", err)
	}
	m, err := readMachine()
	if err != nil {
		return cell.Cost{}, err
	}
	c := cell.Cost{User: cell.Took(user), System: cell.Took(system), Busy: cell.Took(m.busy - s.machine.busy), SoftIRQ: cell.Took(m.softIRQ - s.machine.softIRQ)}
	c.Launches = float64(m.processes - s.machine.processes)
	if s.meter.launches != nil {
		n, err := s.meter.launches.below(s.pid)
		if err != nil {
			return cell.Cost{}, err
		}
		c.Launches = float64(n)
	}
	return c, nil
}

// Memory is what the program, and all that it launched, holds now.
func (s *Subject) Memory() (m cell.Memory, err error) {
	pids, err := s.group.pids()
	if err != nil {
		return m, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended
		}
		rss, err := number(text, "VmRSS")
		if err != nil {
			continue // it is ending
		}
		m.RSS += float64(rss) / (1 << 10)
		if pid == s.pid {
			peak, err := number(text, "VmHWM")
			if err != nil {
				return m, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			m.Peak = float64(peak) / (1 << 10)
		}
	}
	return m, nil
}

// Glance is how often CPU time is looked at to tell whether a program works; one that uses less of a glance than calm rests. Programs that
// rest have clocks of their own, which may take some milliseconds where a machine is emulated.
const (
	glance = 250 * time.Millisecond
	calm   = glance / 12
)

// Rest waits until the program has rested for a while, and returns when it last worked. It is over where the limit came first.
func (s *Subject) Rest(ctx context.Context, rest, limit time.Duration) (at time.Time, over bool, err error) {
	return awaitRest(ctx, s.used, s.Alive, rest, limit)
}

// awaitRest is Rest of a program whose CPU time cpu returns, and whose end alive returns as an error.
func awaitRest(ctx context.Context, cpu func() (time.Duration, error), alive func() error, rest, limit time.Duration) (at time.Time, over bool, err error) {
	at = time.Now()
	deadline := at.Add(limit)
	used, err := cpu()
	if err != nil {
		return at, false, err
	}
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return at, false, ctx.Err()
		case <-ticker.C:
		}
		now, err := cpu()
		if err = errors.Join(err, alive()); err != nil {
			return at, false, err
		}
		if now-used > calm {
			at = time.Now()
		}
		used = now
		if time.Since(at) >= rest {
			return at, false, nil
		}
		if time.Now().After(deadline) {
			return at, true, nil
		}
	}
}

func (s *Subject) used() (time.Duration, error) {
	user, system, err := s.group.cpu()
	return user + system, err
}

// Stop kills the program and all that it launched.
func (s *Subject) Stop() error {
	err := s.group.kill()
	select {
	case <-s.ended:
	case <-time.After(emptied):
		err = errors.Join(err, errors.New("the candidate does not end"))
	}
	return errors.Join(err, s.group.close())
}
