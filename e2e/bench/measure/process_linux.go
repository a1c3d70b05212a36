package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Process is a program that runs in a control group, with all that it launched.
type Process struct {
	group *group
	pid   int
	began time.Time
	ended chan struct{}
	err   error // how it ended; valid after ended is closed
}

// Start runs a command in a control group of its own. Start calls within to launch it, because the launch may need a certain thread.
func Start(cmd *exec.Cmd, within func(func() error) error) (*Process, error) {
	g, err := newGroup()
	if err != nil {
		return nil, err
	}
	g.adopt(cmd)
	p := &Process{group: g, began: time.Now(), ended: make(chan struct{})}
	if err := within(cmd.Start); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), g.close())
	}
	p.pid = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Began is when the command was launched.
func (p *Process) Began() time.Time { return p.began }

// ErrEnded means that the program has ended.
var ErrEnded = errors.New("the program ended by itself")

var errNoStatus = errors.New("exit status 0")

// Alive fails with ErrEnded when the program has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%w: %w", ErrEnded, cmp.Or(p.err, errNoStatus))
	default:
		return nil
	}
}

// Cost is the CPU time since the start.
func (p *Process) Cost() (Cost, error) {
	user, system, err := p.group.cpu()
	if err != nil {
		return Cost{}, fmt.Errorf("read the CPU time: %w", err)
	}
	return Cost{User: Took(user), System: Took(system)}, nil
}

// RSS is the resident memory, in MiB, of the program and of all that it launched.
func (p *Process) RSS() (mib float64, err error) {
	pids, err := p.group.pids()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // the process has ended
		}
		rss, err := number(text, "VmRSS")
		if err != nil {
			continue // the process is ending
		}
		mib += float64(rss) / (1 << 10)
	}
	return mib, nil
}

// Rest reads the CPU time every glance. A program that uses less than calm in a glance rests: timers of a resting program may take some
// milliseconds on an emulated machine.
const (
	glance = 250 * time.Millisecond
	calm   = glance / 12
)

// Rest waits until the program has rested for a while, and returns when it last worked. It is over where the limit came first.
func (p *Process) Rest(ctx context.Context, rest, limit time.Duration) (at time.Time, over bool, err error) {
	return awaitRest(ctx, p.used, p.Alive, rest, limit)
}

// awaitRest is Rest for a program whose CPU time cpu returns; alive returns an error when the program has ended.
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

func (p *Process) used() (time.Duration, error) {
	user, system, err := p.group.cpu()
	return user + system, err
}

// Stop kills the program and all that it launched.
func (p *Process) Stop() error {
	err := p.group.kill()
	select {
	case <-p.ended:
	case <-time.After(emptied):
		err = errors.Join(err, errors.New("the program does not end"))
	}
	return errors.Join(err, p.group.close())
}
