package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// strayRules removes rules of ours from the backend of iptables that this agent does not use:
// an agent with another --iptables-backend left them, and every packet passes the rules of both.
type strayRules struct {
	log  *zap.Logger
	open func(context.Context) ([]*rules.Handle, error)
	// clean has the sign of a backend in which nothing of ours was found.
	clean map[rules.Backend]uint64
	said  string // the warning in the log
}

// clearStrayRules looks when the rules of this agent are in place, and then once a sync period,
// until ctx ends. A backend in which no process has written since is not read again.
func (p *program) clearStrayRules(ctx context.Context) error {
	s := &strayRules{log: p.log, clean: map[rules.Backend]uint64{}, open: func(ctx context.Context) ([]*rules.Handle, error) {
		return rules.Beside(ctx, p.log, rulesOptions(p.live.now(), p.kernel.tables, nil), p.kernel.rules.Backend())
	}}
	if !p.afterStart(ctx, time.Minute) { // a row that is refused for good delays it no longer
		return nil
	}
	for pause := guardPeriod; p.await(ctx, pause, func() bool { return p.loop.Condition().Served }); pause = periods(p.live.now()).AuditPeriod {
		s.look(ctx)
	}
	return nil
}

// look removes what it finds. What fails is told once for each reason, and tried again.
func (s *strayRules) look(ctx context.Context) {
	handles, err := s.open(ctx)
	errs := []error{err}
	for _, h := range handles {
		errs = append(errs, s.purge(ctx, h))
	}
	text := ""
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != s.said {
		s.log.Warn("rules of ours may stay in another backend of iptables, where packets meet them, too", zap.String("error", text))
	}
	s.said = text
}

func (s *strayRules) purge(ctx context.Context, h *rules.Handle) error {
	sign, err := h.Sign(ctx)
	if before, known := s.clean[h.Backend()]; err == nil && known && before == sign {
		return nil
	}
	delete(s.clean, h.Backend())
	found, failed := h.Purge(ctx)
	switch {
	case failed != nil:
		return failed
	case found > 0:
		s.log.Info("rules of ours removed from another backend of iptables", zap.String("backend", string(h.Backend())), zap.Int("rows", found))
	case err == nil: // written in the meantime is another sign
		s.clean[h.Backend()] = sign
	}
	return nil
}

// sweepStray removes rules of ours from backends other than that of k.rules, as part of cleanup: before sets, which such
// rules may use. Those of a kube-proxy that carries on by rules of iptables may be there, and are not told from ours.
func (k *kernel) sweepStray(ctx context.Context, log *zap.Logger, o rules.Options, to ipvs.Successor, out io.Writer) error {
	used := rules.Backend("")
	if k.rules != nil {
		used = k.rules.Backend()
	}
	handles, err := rules.Beside(ctx, log, o, used)
	errs := []error{err}
	for _, h := range handles {
		if to == ipvs.SuccessorIPTables {
			fmt.Fprintf(out, "left     rules of backend %s, for they may be kube-proxy's\n", h.Backend())
			continue
		}
		found, err := h.Purge(ctx)
		errs = append(errs, err)
		if found > 0 && err == nil {
			fmt.Fprintf(out, "removed  %-12s %5d\n", h.Backend(), found)
		}
	}
	return errors.Join(errs...)
}
