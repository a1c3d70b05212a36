package vm

import (
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// StatusBroken is the exit status of a run that failed itself: no kernel, no boot, a time-out. It is the status that
// container runners and timeout(1) use for the same purpose, so a command's own failure can be told apart from ours.
const StatusBroken = 125

// DefaultModules are loaded before the command starts. Schedulers, set types and xt_* matches are left to the kernel, which
// asks modprobe for them on first use: loading everything costs seconds under emulation.
var DefaultModules = []string{
	"ip_vs", "ip_vs_rr", "nf_conntrack", "dummy", "veth", "br_netfilter", "ip_set", "xt_set", "nf_tables", "nft_compat",
}

// Share is a directory of the host seen by the guest over 9p. Executing from it costs a hundred times more than from RAM:
// carry results and data this way, and programs as a Copy.
type Share struct {
	Host, Guest string
	Writable    bool
}

// ParseShare reads HOSTDIR:GUESTDIR with an optional ":rw".
func ParseShare(text string) (Share, error) {
	text, writable := strings.CutSuffix(text, ":rw")
	host, guest, ok := strings.Cut(text, ":")
	if !ok || host == "" || !path.IsAbs(guest) {
		return Share{}, fmt.Errorf("share %q: want HOSTDIR:GUESTDIR[:rw] with an absolute guest directory", text)
	}
	abs, err := filepath.Abs(host)
	if err != nil {
		return Share{}, fmt.Errorf("share %q: %w", text, err)
	}
	return Share{Host: abs, Guest: path.Clean(guest), Writable: writable}, nil
}

// Copy is a file of the host placed in the guest's RAM before boot, keeping its permission bits.
type Copy struct {
	Host, Guest string
}

// ParseCopy reads HOSTFILE:GUESTPATH.
func ParseCopy(text string) (Copy, error) {
	host, guest, ok := strings.Cut(text, ":")
	if !ok || host == "" || !path.IsAbs(guest) {
		return Copy{}, fmt.Errorf("copy %q: want HOSTFILE:GUESTPATH with an absolute guest path", text)
	}
	return Copy{Host: host, Guest: path.Clean(guest)}, nil
}

// Options say what to run and where. The zero value of each field but Command is usable after Defaults.
type Options struct {
	Command []string // program and arguments; the program is looked up in the guest's PATH
	Env     []string // K=V, on top of the guest's small environment
	Dir     string   // working directory of the command, "/" if empty

	Shares  []Share
	Copies  []Copy
	Modules []string // loaded before the command; nil means DefaultModules
	Need    Need     // for RunAnywhere: the requirement for a run on the host; NeedIPVS if empty

	IPTables  string        // "nft" or "legacy": the backend of the plain iptables names
	Accel     string        // "auto": the fastest that works; "qemu": KVM or emulation; "kvm"; "tcg"; "uml": User-mode Linux, a newer kernel; "uml-nft": the same without ipset and iptables; "uml-noipvs": the same without IPVS
	Suite     string        // release of Debian whose kernel boots in QEMU, as "bullseye" or "trixie"; empty for the kernel of this machine's distribution
	NFTOnly   bool          // with "uml": its kernel has neither ipset nor iptables; Accel "uml-nft" is both
	NoIPVS    bool          // with "uml": its kernel has no IPVS; Accel "uml-noipvs" is both
	MemoryMiB int           // memory of the guest
	CPUs      int           // number of CPUs of the guest; one with "uml"
	Timeout   time.Duration // limit of the whole run, boot included
	Link      string        // with "uml": a link of this network namespace becomes the guest's eth0, without an address; empty: a private network
	Verbose   bool          // the kernel's console goes to Log as it is written

	Stdout io.Writer // the command's output, standard error merged in, as it is written
	Log    io.Writer // progress and complaints of the runner
}

// Defaults fills the fields that were left out.
func (o *Options) Defaults() {
	setDefault(&o.Dir, "/")
	setDefault(&o.IPTables, "nft")
	setDefault(&o.Need, NeedIPVS)
	setDefault(&o.Accel, accelAuto)
	if o.Accel == accelAuto && o.Suite != "" {
		o.Accel = accelQEMU
	}
	if o.Accel == accelAuto {
		o.Accel = fastest()
	}
	switch o.Accel {
	case accelUMLNFT:
		o.Accel, o.NFTOnly = accelUML, true
	case accelUMLNoIPVS:
		o.Accel, o.NoIPVS = accelUML, true
	}
	setDefault(&o.MemoryMiB, 2048)
	if o.Accel == accelUML {
		setDefault(&o.CPUs, 1)
	}
	setDefault(&o.CPUs, 2)
	setDefault(&o.Timeout, 20*time.Minute)
	if o.Modules == nil {
		o.Modules = DefaultModules
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// suiteName matches the name of a suite of Debian, which becomes part of a path.
var suiteName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Validate reports all mistakes together.
func (o *Options) Validate() error {
	var errs []error
	if len(o.Command) == 0 {
		errs = append(errs, errors.New("no command given"))
	}
	if o.IPTables != "nft" && o.IPTables != "legacy" {
		errs = append(errs, fmt.Errorf("iptables flavour %q: want nft or legacy", o.IPTables))
	}
	if _, err := ParseNeed(string(o.Need)); err != nil {
		errs = append(errs, err)
	}
	if ways := []string{accelAuto, accelQEMU, accelKVM, accelTCG, accelUML, accelUMLNFT, accelUMLNoIPVS}; !slices.Contains(ways, o.Accel) {
		errs = append(errs, fmt.Errorf("accelerator %q: want one of %s", o.Accel, strings.Join(ways, ", ")))
	}
	if o.MemoryMiB < 256 || o.CPUs < 1 || o.Timeout <= 0 {
		errs = append(errs, errors.New("want at least 256 MiB of memory, one CPU and a positive time-out"))
	}
	if o.Suite != "" && (o.Accel == accelUML || !suiteName.MatchString(o.Suite)) {
		errs = append(errs, fmt.Errorf("suite %q: want the name of a suite of Debian, and not with -accel uml", o.Suite))
	}
	if o.Accel == accelUML && o.CPUs > 1 {
		errs = append(errs, fmt.Errorf("%d CPUs: with -accel uml a guest has one", o.CPUs))
	}
	if o.Link != "" && o.Accel != accelUML {
		errs = append(errs, fmt.Errorf("link %s: only with -accel uml", o.Link))
	}
	for _, kv := range o.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || !isShellName(name) {
			errs = append(errs, fmt.Errorf("environment %q: want NAME=VALUE", kv))
		}
	}
	return errors.Join(errs...)
}

// isShellName reports whether the guest's shell can export a variable of that name.
func isShellName(name string) bool {
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
