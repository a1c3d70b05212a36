package inspect

import (
	"context"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const pathNames = "/v1/names"

// Name is the Service that has a frontend, without more, for programs that read all of them often.
type Name struct {
	Addr      netip.Addr     `json:"address"`
	Port      uint16         `json:"port"`
	Protocol  model.Protocol `json:"protocol"` // IP protocol number
	Namespace string         `json:"namespace"`
	Service   string         `json:"service"`
	PortName  string         `json:"portName,omitempty"`
	Kind      string         `json:"kind"`
}

// nameRows are the frontends that a Service has, without those that another one has.
func nameRows(k agent.ServiceInfo, f Filter) []Name {
	lost := winners(k)
	out := make([]Name, 0, len(k.Frontends))
	for i := range k.Frontends {
		fe := &k.Frontends[i]
		if _, is := lost[fe.Key]; !is && f.hasFrontend(fe) {
			out = append(out, Name{fe.Key.Addr, fe.Key.Port, fe.Key.Protocol, k.ID.Namespace, k.ID.Name, fe.PortName, fe.Kind.String()})
		}
	}
	return out
}

// Names asks which Services have which frontends.
func (c *Client) Names(ctx context.Context, f Filter) (List[Name], error) {
	return ask[Name](ctx, c, pathNames, f)
}
