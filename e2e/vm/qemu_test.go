package vm

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// optionsAfter returns the values that follow a flag, in order.
func optionsAfter(args []string, flag string) []string {
	var values []string
	for i, arg := range args[:len(args)-1] {
		if arg == flag {
			values = append(values, args[i+1])
		}
	}
	return values
}

func TestQemuArgs(t *testing.T) {
	o := Options{MemoryMiB: 512, CPUs: 3, Shares: []Share{{Host: "/a,b", Guest: "/x"}, {Host: "/out", Guest: "/y", Writable: true}}}
	args := qemuArgs(o, Kernel{Image: "/k/vmlinux"}, accelTCG)
	for flag, want := range map[string][]string{
		"-m":       {"512"},
		"-smp":     {"3"},
		"-kernel":  {"/k/vmlinux"},
		"-initrd":  {"/proc/self/fd/3"},
		"-accel":   {"tcg,thread=multi,tb-size=1024"},
		"-cpu":     {"max,la57=off"},
		"-serial":  {"chardev:console"},
		"-display": {"none"},
		"-chardev": {
			"file,id=console,path=/proc/self/fd/4,append=on", "file,id=output,path=/proc/self/fd/5,append=on",
			"file,id=report,path=/proc/self/fd/6,append=on",
		},
		"-virtfs": {
			"local,path=/a,,b,mount_tag=share0,security_model=none,multidevs=remap,readonly=on",
			"local,path=/out,mount_tag=share1,security_model=none,multidevs=remap",
		},
	} {
		if diff := cmp.Diff(want, optionsAfter(args, flag)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flag, diff)
		}
	}
	if !slices.Contains(args, "-no-reboot") {
		t.Error("without -no-reboot a panic would boot for ever")
	}
}

func TestKernelCommandLine(t *testing.T) {
	const emulated = "norandmaps"
	if line := kernelCommandLine(accelTCG); !strings.Contains(line, emulated) {
		t.Errorf("emulated kernel gets %q, want %s: randomised addresses make it several times slower", line, emulated)
	}
	if line := kernelCommandLine(accelKVM); strings.Contains(line, emulated) || strings.Contains(line, "clocksource=tsc") {
		t.Errorf("virtualised kernel gets %q, want its own clock and address randomisation", line)
	}
}

func TestParseReport(t *testing.T) {
	tests := []struct {
		line string
		want report
		ok   bool
	}{
		{line: "up 6.1.0-56-amd64", want: report{up: "6.1.0-56-amd64"}, ok: true},
		{line: "exit 0", want: report{exited: true}, ok: true},
		{line: "exit 7\r", want: report{exited: true, status: 7}, ok: true},
		{line: "exit 255", want: report{exited: true, status: 255}, ok: true},
		{line: "exit 256"},
		{line: "exit -1"},
		{line: "exit"},
		{line: "exit x"},
		{line: "hello"},
		{line: ""},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			got, err := parseReport(tt.line)
			if (err == nil) != tt.ok || got != tt.want {
				t.Errorf("parseReport = %+v, %v, want %+v, ok %t", got, err, tt.want, tt.ok)
			}
		})
	}
}
