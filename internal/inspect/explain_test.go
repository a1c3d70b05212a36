package inspect_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// teller answers with what it was asked.
type teller struct{ reader }

func (teller) Explain(_ context.Context, q agent.Query) (agent.Report, error) {
	return agent.Report{Asked: q.String(), Holder: q.From.String()}, nil
}

func (teller) Rows(_ context.Context, kind string) (func(io.Writer) error, error) {
	if kind == "pods" {
		return nil, errors.New("no rows named pods")
	}
	return func(w io.Writer) error { _, err := io.WriteString(w, "rows of "+kind); return err }, nil
}

func TestStoriesTravel(t *testing.T) {
	c := inspect.NewClient(serve(t, teller{}))
	addr := netip.MustParseAddr("10.96.0.10")
	for want, q := range map[string]agent.Query{
		"shop/web":          {Service: "shop/web"},
		"10.96.0.10":        {Address: addr},
		"10.96.0.10:53":     {Address: addr, Port: 53},
		"10.96.0.10:53/udp": {Address: addr, Port: 53, Protocol: model.UDP, From: netip.MustParseAddr("fd00::1")},
		"[fd00::a]:53/sctp": {Address: netip.MustParseAddr("fd00::a"), Port: 53, Protocol: model.SCTP},
	} {
		s, err := c.Explain(t.Context(), q)
		if err != nil || s.Asked != want || s.Holder != q.From.String() {
			t.Errorf("asked %+v, got %+v, error %v", q, s, err)
		}
	}
	if text, err := c.Rows(t.Context(), "servers"); err != nil || text != "rows of servers" {
		t.Errorf("rows %q, error %v", text, err)
	}
	if _, err := c.Rows(t.Context(), "pods"); err == nil || !strings.Contains(err.Error(), "no rows named pods") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Explain(t.Context(), agent.Query{Service: "a/b/c"}); err == nil || !strings.Contains(err.Error(), "is neither namespace/name") {
		t.Errorf("error %v", err)
	}
}
