package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

func newCheck(settings *config.Settings) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "say what this node lacks, and the remedy",
		Long: `Try everything that ipvs mode needs by using it: the device, a scheduler, the set
types, iptables. What is missing is named with the remedy. The exit status is 1
when the node cannot carry Services. Nothing is left behind.`,
		Example: `  kube-ipvs check
  kube-ipvs check --ipvs-scheduler mh`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(*settings)
			if err != nil {
				return err
			}
			t := tune.New(zap.NewNop(), tune.Options{RunDir: c.RunDir})
			t.LoadModules(cmd.Context(), modules(t, c)...)
			verdicts := tune.RunChecks(cmd.Context(), append(nodeChecks(t, c), t.Checks(tune.CheckOptions{IPv6: true})...))
			if err := tune.WriteVerdicts(cmd.OutOrStdout(), verdicts); err != nil {
				return err
			}
			return unfit(verdicts)
		},
	}
}

// nodeChecks are the questions that only use can answer.
func nodeChecks(t *tune.Tuner, c config.Config) []tune.Check {
	log := zap.NewNop()
	checks := []tune.Check{
		{Name: "device " + link.DefaultName, Fix: t.ModuleFix("dummy"), Run: func(ctx context.Context) error {
			return grade(probeDummy(ctx, log), link.ErrUnsupported)
		}},
		{Name: "iptables", Fix: "install iptables and ip6tables", Run: func(context.Context) error {
			_, err := openRules(log, c)
			return err
		}},
		{Name: "ipvs scheduler " + c.Scheduler.Name(), Fix: t.ModuleFix(c.Scheduler.Algorithm().Module), Run: func(ctx context.Context) error {
			s, err := vserver.New(log, vserver.Options{})
			if err != nil {
				return grade(err, vserver.ErrUnsupported)
			}
			defer s.Close()
			return grade(s.Probe(ctx, c.Scheduler.Name()), vserver.ErrUnsupported)
		}},
	}
	for _, set := range ipvs.AllSets() {
		checks = append(checks, setCheck(t, set))
	}
	return checks
}

// probeDummy makes a device of another name and takes it away again.
func probeDummy(ctx context.Context, log *zap.Logger) error {
	l, err := link.New(log, link.Options{Name: "kube-ipvs-probe"})
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = l.Ensure(ctx)
	return errors.Join(err, l.Remove(ctx))
}

func setCheck(t *tune.Tuner, set ipset.Set) tune.Check {
	return tune.Check{Name: "sets of type " + string(set.Type), Fix: t.ModuleFix("ip_set"), Run: func(ctx context.Context) error {
		h, err := ipset.New(ipset.Options{})
		if err != nil {
			return grade(err, ipset.ErrUnsupported)
		}
		defer h.Close()
		_, err = h.Revision(ctx, set.Type, set.Family)
		return grade(err, ipset.ErrUnsupported)
	}}
}

// grade tells what the node cannot do from what went wrong.
func grade(err, unsupported error) error {
	if errors.Is(err, unsupported) {
		return tune.Lacking(err)
	}
	return err
}

// unfit fails when the node cannot carry Services.
func unfit(verdicts []tune.Verdict) error {
	for _, v := range verdicts {
		if v.State != tune.OK && v.State != tune.Warn {
			return errors.New("this node cannot carry Services in ipvs mode")
		}
	}
	return nil
}
