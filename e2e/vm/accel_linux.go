package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// attempt is one way to boot. A trial's outcome is kept for the next run.
type attempt struct {
	accel string
	limit time.Duration
	trial bool
}

// fastest returns User-mode Linux where it was built and this user may use it, unless KVM is known to work; else accelQEMU.
func fastest() string {
	cache, err := CacheDir()
	if err == nil && !kvmKnownGood() && os.Geteuid() == 0 && exists(umlFull.root(cache)) {
		return accelUML
	}
	return accelQEMU
}

// runAccelerated chooses between hardware virtualisation and emulation. A /dev/kvm that exists proves little: some hosts hang
// in the firmware. So the first run of each host boot tries it for a few seconds and the answer is kept.
func runAccelerated(ctx context.Context, o Options, kernel Kernel, initrd *os.File, log *progress) (int, error) {
	if o.Accel == accelUML {
		return boot(ctx, o, kernel, initrd, attempt{accel: accelUML, limit: bootLimit}, log)
	}
	if o.Accel == accelTCG || o.Accel == accelQEMU && !kvmWorthTrying() {
		return boot(ctx, o, kernel, initrd, attempt{accel: accelTCG, limit: bootLimit}, log)
	}
	if o.Accel == accelKVM || kvmKnownGood() {
		return boot(ctx, o, kernel, initrd, attempt{accel: accelKVM, limit: bootLimit}, log)
	}
	log.printf("boot: trying hardware virtualisation for %s", kvmTrial)
	status, err := boot(ctx, o, kernel, initrd, attempt{accel: accelKVM, limit: kvmTrial, trial: true}, log)
	if !errors.Is(err, errNoBoot) {
		return status, err
	}
	log.printf("boot: /dev/kvm does not work here, emulating from now on")
	return boot(ctx, o, kernel, initrd, attempt{accel: accelTCG, limit: bootLimit, trial: true}, log)
}

func kvmWorthTrying() bool {
	file, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	file.Close()
	answer, known := recallKVM()
	return answer || !known
}

func kvmKnownGood() bool {
	answer, known := recallKVM()
	return known && answer
}

// kvmMemory holds "BOOTID true" or "BOOTID false"; an answer given before the host's last boot is no answer.
func kvmMemory() (path, bootID string) {
	cache, err := CacheDir()
	if err != nil {
		return "", ""
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", ""
	}
	return filepath.Join(cache, "kvm"), strings.TrimSpace(string(id))
}

func recallKVM() (works, known bool) {
	path, bootID := kvmMemory()
	text, err := os.ReadFile(path)
	if err != nil {
		return false, false
	}
	id, answer, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return answer == "true", id == bootID
}

// rememberKVM does its best: without the memory the next run merely tries again.
func rememberKVM(works bool) {
	path, bootID := kvmMemory()
	if path != "" {
		_ = os.WriteFile(path, fmt.Appendf(nil, "%s %t\n", bootID, works), 0o644)
	}
}
