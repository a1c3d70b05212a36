package rules

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// pickBackend chooses where the host's rules live. Writing into the other
// backend would leave two sets of rules that both see every packet. It returns what it
// has seen of the backend, if it looked.
func pickBackend(ctx context.Context, log *zap.Logger, opts Options) (Backend, content, error) {
	if opts.Backend != "" {
		return opts.Backend, content{}, nil
	}
	nft := readContent(ctx, opts, NFT)
	legacy := readContent(ctx, opts, Legacy)
	b, reason := NFT, "rules of the host"
	switch {
	case nft.better(legacy):
	case legacy.better(nft):
		b = Legacy
	default:
		var err error
		if b, err = defaultBackend(ctx, opts); err != nil {
			return "", content{}, err
		}
		reason = "default of the installed tools"
	}
	log.Info("iptables backend chosen", zap.String("backend", string(b)), zap.String("reason", reason),
		zap.Int("nft_rules", nft.rules), zap.Int("legacy_rules", legacy.rules))
	return b, map[Backend]content{NFT: nft, Legacy: legacy}[b], nil
}

// readContent sums up both families; tools that are missing or fail count
// as no rules.
func readContent(ctx context.Context, opts Options, b Backend) content {
	c := content{opened: map[Family]bool{}}
	for _, f := range opts.Families {
		if b == Legacy && !legacyInUse(opts.Root, f) {
			continue
		}
		t, err := findTools(ctx, opts.Timeout, f, b)
		if err != nil {
			continue
		}
		if out, err := run(ctx, opts.listTimeout(), nil, t.save); err == nil {
			c.add(f, out)
		}
	}
	return c
}

// defaultBackend is the backend of the plain binaries, else of whichever exist.
func defaultBackend(ctx context.Context, opts Options) (Backend, error) {
	for _, base := range []string{"iptables", "ip6tables"} {
		if t, err := lookTools(base); err == nil {
			return t.backend(ctx, opts.Timeout)
		}
	}
	for _, b := range []Backend{NFT, Legacy} {
		for _, f := range opts.Families {
			if _, err := findTools(ctx, opts.Timeout, f, b); err == nil {
				return b, nil
			}
		}
	}
	return "", fmt.Errorf("choose iptables backend: no iptables tools found: %w", ErrUnsupported)
}

// probeFamily finds the tools of a family and tries them once, unless what was seen shows
// that they work.
func probeFamily(ctx context.Context, opts Options, f Family, b Backend, seen content) (tools, error) {
	if f == IPv6 {
		if err := ipv6Usable(opts); err != nil {
			return tools{}, err
		}
	}
	t, err := findTools(ctx, opts.Timeout, f, b)
	if err != nil {
		return tools{}, err
	}
	if b == NFT && seen.opened[f] {
		return t, nil
	}
	// Listing a built-in chain makes the tool open its table, which an
	// absent kernel side refuses; iptables-save would print nothing instead.
	if _, err = run(ctx, opts.Timeout, nil, t.command, waitArg(opts), "-t", "nat", "-S", "PREROUTING"); err != nil {
		return tools{}, fmt.Errorf("try table nat: %w", err)
	}
	return t, nil
}

// usable leaves out the families this node lacks, saying so once each.
func usable(ctx context.Context, log *zap.Logger, opts Options, b Backend, seen content) (map[Family]tools, error) {
	found := map[Family]tools{}
	var errs []error
	for _, f := range opts.Families {
		t, err := probeFamily(ctx, opts, f, b, seen)
		switch {
		case err == nil:
			found[f] = t
		case errors.Is(err, ErrUnsupported):
			log.Warn("IP family is not used", zap.String("family", f.Table()), zap.Error(err))
			errs = append(errs, err)
		default:
			return nil, fmt.Errorf("probe iptables of family %s: %w", f, err)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no usable iptables family: %w", errors.Join(errs...))
	}
	return found, nil
}
