// Command vmrun runs a command on a kernel that has IPVS and returns its exit status; see package vm.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// task is what to do with the options.
type task struct {
	prepare, where, auto bool
}

func run(ctx context.Context, args []string) int {
	o := vm.Options{Stdout: os.Stdout, Log: os.Stderr}
	var todo task
	flags := flag.NewFlagSet("vmrun", flag.ContinueOnError)
	flags.Usage = func() { usage(flags) }
	bindTask(flags, &todo)
	bind(flags, &o)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return vm.StatusBroken
	}
	o.Command = flags.Args()
	return todo.do(ctx, o)
}

func (t task) do(ctx context.Context, o vm.Options) int {
	switch {
	case t.prepare:
		return report(0, vm.Prepare(ctx, o))
	case t.where:
		where, reason := vm.Locate(ctx, cmp.Or(o.Need, vm.NeedIPVS))
		if reason != nil {
			fmt.Fprintln(os.Stderr, "vmrun:", reason)
		}
		fmt.Println(where)
		return 0
	case t.auto:
		return report(vm.RunAnywhere(ctx, o))
	default:
		return report(vm.Run(ctx, o))
	}
}

func report(status int, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmrun:", err)
		return vm.StatusBroken
	}
	return status
}

const help = `vmrun runs a command on a kernel that has IPVS and returns its exit status; %d means that vmrun itself failed.

  vmrun [flags] -- command [args...]

Examples:
  vmrun -- ipvsadm -Ln
  vmrun -copy bin/kube-ipvs:/run/bin/kube-ipvs -iptables legacy -- /run/bin/kube-ipvs check
  vmrun -share testdata:/run/data -share out:/run/out:rw -env LEVEL=debug -timeout 5m -- bash /run/data/scenario.sh
  vmrun -auto -- bash -c 'echo running in $KUBE_IPVS_WHERE'
  vmrun -where      prints netns or vm, and the reason on standard error
  vmrun -prepare    fills the cache and boots nothing

Flags:
`

func usage(flags *flag.FlagSet) {
	fmt.Fprintf(flags.Output(), help, vm.StatusBroken)
	flags.PrintDefaults()
}

// bindTask declares the flags that choose what to do.
func bindTask(flags *flag.FlagSet, t *task) {
	flags.BoolVar(&t.prepare, "prepare", false, "fetch the kernel, build the root file system, run nothing")
	flags.BoolVar(&t.where, "where", false, "print where -auto would run: netns or vm")
	flags.BoolVar(&t.auto, "auto", false, "run in a network namespace of this host if its kernel has what -need names, else in the VM")
}

// bind declares the flags that describe a run.
func bind(flags *flag.FlagSet, o *vm.Options) {
	flags.StringVar(&o.Dir, "dir", "/", "working `directory` of the command")
	flags.StringVar(&o.IPTables, "iptables", "nft", "what the plain iptables names mean: nft or legacy")
	flags.StringVar(&o.Accel, "accel", "auto", "auto: the fastest that works; qemu: the distribution's kernel; kvm, tcg: only so; uml: User-mode Linux, a newer kernel, built once; uml-nft: the same without ipset and iptables; uml-noipvs: the same without IPVS")
	flags.StringVar(&o.Suite, "suite", "", "`suite` of Debian whose kernel boots in QEMU, as bullseye or trixie (default: this machine's distribution)")
	flags.IntVar(&o.MemoryMiB, "m", 2048, "memory of the guest in `MiB`")
	flags.IntVar(&o.CPUs, "smp", 0, "CPUs of the guest (default 2, with -accel uml always 1)")
	flags.DurationVar(&o.Timeout, "timeout", 0, "of the whole run (default 20m)")
	flags.StringVar(&o.Link, "link", "", "`LINK` of this network namespace that is the guest's eth0, with -accel uml; without it the network is private")
	flags.BoolVar(&o.Verbose, "v", false, "show the kernel's console on standard error")
	flags.Func("env", "`K=V` for the command's environment; repeatable", func(text string) error {
		o.Env = append(o.Env, text)
		return nil
	})
	flags.Func("need", "what the kernel has to have for -auto and -where: ipvs or iptables (default ipvs)", func(text string) (err error) {
		o.Need, err = vm.ParseNeed(text)
		return err
	})
	flags.Func("modules", "space or comma separated `list` of modules loaded before the command", func(text string) error {
		o.Modules = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	})
	flags.Func("share", "`HOSTDIR:GUESTDIR[:rw]` seen over 9p, read-only unless :rw; repeatable", func(text string) error {
		share, err := vm.ParseShare(text)
		o.Shares = append(o.Shares, share)
		return err
	})
	flags.Func("copy", "`HOSTFILE:GUESTPATH` placed in the guest's RAM; repeatable", func(text string) error {
		file, err := vm.ParseCopy(text)
		o.Copies = append(o.Copies, file)
		return err
	})
}
