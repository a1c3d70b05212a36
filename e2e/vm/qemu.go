package vm

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	accelAuto = "auto" // the fastest that works: KVM, else User-mode Linux if it was built, else emulation
	accelQEMU = "qemu" // the distribution's kernel, by KVM where that works, else emulated
	accelKVM  = "kvm"
	accelTCG  = "tcg"
)

// Descriptors QEMU inherits from the runner: the initramfs in anonymous memory and the writing ends of three pipes.
const (
	fdInitrd = 3 + iota
	fdConsole
	fdOutput
	fdReport
)

// qemuArgs builds QEMU's command line.
func qemuArgs(o Options, kernel Kernel, accel string) []string {
	args := []string{
		// Not -nographic: with it the firmware talks on the console, too, and clears the reader's terminal.
		"-nodefaults", "-display", "none", "-no-reboot", "-no-user-config",
		"-smp", strconv.Itoa(o.CPUs), "-m", strconv.Itoa(o.MemoryMiB),
		// 57-bit addresses cost an extra page-table level and buy nothing here.
		"-cpu", "max,la57=off",
		"-kernel", kernel.Image,
		"-initrd", fmt.Sprintf("/proc/self/fd/%d", fdInitrd),
		"-append", kernelCommandLine(accel),
		"-device", "virtio-rng-pci",
		// The guest's own IPv6 router advertisements would put a default route and addresses into tests that count them.
		"-netdev", "user,id=net,ipv6=off", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-serial-pci,max_ports=4",
	}
	args = append(args, accelArgs(accel)...)
	args = append(args, pipeArgs("console", fdConsole)...)
	args = append(args, "-serial", "chardev:console")
	args = append(args, portArgs("output", fdOutput)...)
	args = append(args, portArgs("report", fdReport)...)
	for i, share := range o.Shares {
		args = append(args, "-virtfs", shareArg(i, share))
	}
	return args
}

func accelArgs(accel string) []string {
	if accel == accelKVM {
		return []string{"-accel", "kvm"}
	}
	// A small translation buffer is flushed over and over: 1 GiB made program starts several times faster.
	return []string{"-accel", "tcg,thread=multi,tb-size=1024"}
}

// kernelCommandLine trades hardening for speed. Randomised addresses make emulated program starts
// 3-4 times slower, because translated code is found by address; the TSC is trusted because
// calibrating it against emulated timers takes a second. The timer interrupt is not tested
// (no_timer_check). On a busy machine it does not come in the time of the test, and the guest
// panics or hangs (check_timer in arch/x86/kernel/apic/io_apic.c).
func kernelCommandLine(accel string) string {
	line := "console=ttyS0 panic=-1 quiet mitigations=off nopti random.trust_cpu=on net.ifnames=0"
	if accel == accelTCG {
		line += " norandmaps nokaslr no_timer_check tsc=reliable clocksource=tsc"
	}
	return line
}

// pipeArgs declares a character device that writes into an inherited pipe. append=on, because a pipe cannot be truncated.
func pipeArgs(name string, fd int) []string {
	return []string{"-chardev", fmt.Sprintf("file,id=%s,path=/proc/self/fd/%d,append=on", name, fd)}
}

// portArgs declares a virtio port of that name on top of such a pipe. Unlike a serial line it moves whole buffers.
func portArgs(name string, fd int) []string {
	return append(pipeArgs(name, fd), "-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", name, name))
}

func shareArg(i int, share Share) string {
	arg := fmt.Sprintf("local,path=%s,mount_tag=%s,security_model=none,multidevs=remap", escapeComma(share.Host), shareTag(i))
	if !share.Writable {
		arg += ",readonly=on"
	}
	return arg
}

// escapeComma protects a path inside a QEMU option list.
func escapeComma(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// report is one line the guest's init wrote to the report port.
type report struct {
	up     string // the kernel's release, when the command is about to start
	exited bool
	status int
}

// parseReport reads "up RELEASE" and "exit STATUS".
func parseReport(line string) (report, error) {
	word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case "up":
		return report{up: value}, nil
	case "exit":
		status, err := strconv.Atoi(value)
		if err != nil || status < 0 || status > 255 {
			return report{}, fmt.Errorf("exit status %q of the guest", value)
		}
		return report{exited: true, status: status}, nil
	default:
		return report{}, fmt.Errorf("unknown report %q of the guest", line)
	}
}
