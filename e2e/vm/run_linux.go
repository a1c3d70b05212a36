package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootLimit bounds the time until the guest's init reports in. Emulation takes 6 s, and minutes on a busy machine.
// kvmTrial is short because hardware virtualisation boots in 2 s or, on hosts whose /dev/kvm does not work, never.
const (
	bootLimit = 5 * time.Minute
	kvmTrial  = 6 * time.Second
)

// errNoBoot means that the guest's init never reported in, so the command has not started.
var errNoBoot = errors.New("the guest did not boot")

// Prepare fetches or builds the kernel that the options ask for, and the root file system, both into the cache, without running anything.
func Prepare(ctx context.Context, o Options) (err error) {
	o.Defaults()
	_, _, err = prepare(ctx, o.finder(), newProgress(o.Log))
	return err
}

// finder finds the kernel that the options ask for.
func (o *Options) finder() kernelFinder {
	switch {
	case o.Accel == accelUML && o.NFTOnly:
		return umlNFT.find
	case o.Accel == accelUML && o.NoIPVS:
		return umlNoIPVS.find
	case o.Accel == accelUML:
		return umlFull.find
	}
	return kernelOf(o.Suite)
}

func prepare(ctx context.Context, find kernelFinder, log *progress) (Kernel, string, error) {
	cache, err := CacheDir()
	if err != nil {
		return Kernel{}, "", err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return Kernel{}, "", err
	}
	defer unlock()
	if err := sweep(cache); err != nil {
		return Kernel{}, "", err
	}
	kernel, err := find(ctx, cache, log)
	if err != nil {
		return Kernel{}, "", err
	}
	parts, err := findRootfs(kernel)
	if err != nil {
		return Kernel{}, "", err
	}
	image, err := parts.image(ctx, cache, log)
	return kernel, image, err
}

// lock lets one process at a time fill the cache; the kernel releases it however the process ends.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

// Run boots a guest, runs the command in it and returns its exit status. An error means that the run itself failed (no kernel,
// no boot, time-out, cancelled context); the status is then StatusBroken. Output is streamed to o.Stdout. When Run returns, QEMU is gone.
func Run(ctx context.Context, o Options) (int, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return StatusBroken, err
	}
	log := newProgress(o.Log)
	kernel, image, err := prepare(ctx, o.finder(), log)
	if err != nil {
		return StatusBroken, err
	}
	initrd, err := initramfs(image, o)
	if err != nil {
		return StatusBroken, err
	}
	defer initrd.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("time-out of %s", o.Timeout))
	defer cancel()
	return runAccelerated(ctx, o, kernel, initrd, log)
}

// initramfs puts the image and the overlay of this run into anonymous memory, so that no file is left however the run ends.
func initramfs(image string, o Options) (_ *os.File, err error) {
	fd, err := unix.MemfdCreate("initramfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory for the initramfs: %w", err)
	}
	memory := os.NewFile(uintptr(fd), "initramfs")
	defer func() {
		if err != nil {
			memory.Close()
		}
	}()
	base, err := os.Open(image)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	if _, err := io.Copy(memory, base); err != nil {
		return nil, err
	}
	return memory, writeOverlay(memory, o)
}

// boot starts one QEMU and follows it to its end.
func boot(ctx context.Context, o Options, kernel Kernel, initrd *os.File, try attempt, log *progress) (int, error) {
	m, err := startMachine(o, kernel, initrd, try.accel, log)
	if err != nil {
		return StatusBroken, err
	}
	status, err := m.follow(ctx, try.limit, func(release string, took time.Duration) {
		log.printf("boot: kernel %s up in %.1fs (%s)", release, took.Seconds(), try.accel)
		if try.trial {
			rememberKVM(try.accel == accelKVM)
		}
	})
	m.stop()
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) { // the caller that cancels knows why and wants no console
		err = fmt.Errorf("%w\n%s", err, m.lastWords())
	}
	return status, err
}

// dieWithRunner makes the kernel end a child when the thread that started it ends, which covers a runner killed outright.
func dieWithRunner() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// endTogether makes the end of a context end what a helper has started, too: a build is many processes.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
