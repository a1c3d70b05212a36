package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const (
	pathNames    = "/v1/names"
	pathDraining = "/v1/draining"
)

// Namer tells whose virtual servers there are; *agent.Agent is one.
type Namer interface {
	Services(ctx context.Context) ([]model.ServiceID, error)
	Look(ctx context.Context, ids []model.ServiceID, visit func(agent.Known)) error
	Draining(ctx context.Context) ([]dataplane.Draining, error)
}

// Name says which Service a frontend is of. Field names in JSON are kept for good.
type Name struct {
	Addr      netip.Addr     `json:"address"`
	Port      uint16         `json:"port"`
	Protocol  model.Protocol `json:"protocol"` // IP protocol number
	Namespace string         `json:"namespace"`
	Service   string         `json:"service"`
	PortName  string         `json:"portName,omitempty"`
	Kind      string         `json:"kind"`
}

// Draining is a destination that drains.
type Draining struct {
	Addr     netip.Addr     `json:"address"` // of the frontend
	Port     uint16         `json:"port"`
	Protocol model.Protocol `json:"protocol"`
	Endpoint netip.AddrPort `json:"endpoint"`
	// Until is when its connections are cut; the zero time is never.
	Until time.Time `json:"until"`
}

// serveNames serves names, if the reader knows them.
func serveNames(mux *http.ServeMux, r Reader) {
	n, ok := r.(Namer)
	if !ok {
		return
	}
	mux.HandleFunc("GET "+pathNames, func(w http.ResponseWriter, req *http.Request) { writeNames(w, req, n) })
	mux.HandleFunc("GET "+pathDraining, func(w http.ResponseWriter, req *http.Request) { writeDraining(w, req, n) })
}

// writeNames sends a JSON object for each frontend as it is looked at: nothing is kept for
// the answer. One that ends early is cut, so that nobody takes it for all.
func writeNames(w http.ResponseWriter, req *http.Request, n Namer) {
	ctx, cancel := context.WithTimeout(req.Context(), answerWithin)
	defer cancel()
	ids, err := n.Services(ctx)
	if err != nil {
		busy(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	err = n.Look(ctx, ids, func(k agent.Known) {
		for _, fe := range k.Frontends {
			if !lost(k, fe.Key) {
				_ = out.Encode(Name{fe.Key.Addr, fe.Key.Port, fe.Key.Protocol, k.ID.Namespace, k.ID.Name, fe.PortName, fe.Kind.String()}) // the client went away
			}
		}
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

func lost(k agent.Known, key model.FrontendKey) bool {
	for _, c := range k.Lost {
		if c.Key == key {
			return true
		}
	}
	return false
}

func writeDraining(w http.ResponseWriter, req *http.Request, n Namer) {
	ctx, cancel := context.WithTimeout(req.Context(), answerWithin)
	defer cancel()
	list, err := n.Draining(ctx)
	if err != nil {
		busy(w, err)
		return
	}
	out := make([]Draining, 0, len(list))
	for _, d := range list {
		out = append(out, Draining{d.Frontend.Addr, d.Frontend.Port, d.Frontend.Protocol, d.Addr, d.Until})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client went away
}

func busy(w http.ResponseWriter, err error) {
	http.Error(w, "the loop is busy or stuck: "+err.Error(), http.StatusServiceUnavailable)
}

// Names asks which Services have which frontends.
func (c *Client) Names(ctx context.Context) ([]Name, error) {
	body, err := c.get(ctx, pathNames)
	if err != nil {
		return nil, err
	}
	var list []Name
	for lines := json.NewDecoder(bytes.NewReader(body)); ; {
		var n Name
		if err := lines.Decode(&n); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read names: %w", err)
		}
		list = append(list, n)
	}
}

// Draining asks which destinations drain.
func (c *Client) Draining(ctx context.Context) ([]Draining, error) {
	body, err := c.get(ctx, pathDraining)
	if err != nil {
		return nil, err
	}
	var list []Draining
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read what drains: %w", err)
	}
	return list, nil
}
