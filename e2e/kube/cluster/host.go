package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// call is one request to a Host; answer is what comes back. Which fields count depends on the method.
type call struct {
	Method  string   `json:"method"`
	Cluster int      `json:"cluster,omitempty"`
	Args    []string `json:"args,omitempty"`
	Input   string   `json:"input,omitempty"`
	Who     Identity `json:"who,omitzero"`
	Options Options  `json:"options,omitzero"`

	Replacements []Replacement `json:"replacements,omitempty"`
	Rate         int           `json:"rate,omitempty"`
}

type answer struct {
	Text     string `json:"text,omitempty"`
	Number   int64  `json:"number,omitempty"`
	Error    string `json:"error,omitempty"`
	NotBuilt bool   `json:"notBuilt,omitempty"` // the error is binaries.ErrNotBuilt
}

// Host runs control planes for guests, as an HTTP handler. A client that knows its path may run
// kubectl with any arguments, so the path is a secret. Each cluster is for one client at a time;
// clusters are independent of each other.
type Host struct {
	path    string
	reached netip.Addr
	log     io.Writer

	mu       sync.Mutex
	last     int
	clusters map[int]*Cluster
}

// NewHost serves clients that reach this machine's loopback under an address, HostFromGuest for guests of package vm.
func NewHost(reached netip.Addr, log io.Writer) *Host {
	return &Host{path: "/" + rand.Text(), reached: reached, log: log, clusters: map[int]*Cluster{}}
}

// Path is where the handler answers.
func (h *Host) Path() string { return h.path }

// ServeHTTP does one call. Only kubectl and replacements are cut short when their client goes away: a cluster must not be left half started.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != h.path || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	var asked call
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	if asked.Method != "kubectl" && asked.Method != "replace" {
		ctx = context.WithoutCancel(ctx)
	}
	given, err := h.do(ctx, asked)
	if err != nil {
		given = answer{Error: err.Error(), NotBuilt: errors.Is(err, binaries.ErrNotBuilt)}
	}
	_ = json.NewEncoder(w).Encode(given) // a client that went away needs no answer
}

func (h *Host) do(ctx context.Context, asked call) (answer, error) {
	if asked.Method == "start" {
		return h.start(ctx, asked.Options)
	}
	h.mu.Lock()
	c := h.clusters[asked.Cluster]
	if asked.Method == "close" {
		delete(h.clusters, asked.Cluster)
	}
	h.mu.Unlock()
	if c == nil {
		return answer{}, fmt.Errorf("%s: no cluster %d", asked.Method, asked.Cluster)
	}
	return h.doWith(ctx, c, asked)
}

func (h *Host) start(ctx context.Context, o Options) (answer, error) {
	o.Log, o.Reached = h.log, append(o.Reached, h.reached)
	c, err := Start(ctx, o)
	if err != nil {
		return answer{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.clusters[h.last] = c
	return answer{Number: int64(h.last)}, nil
}

func (h *Host) doWith(ctx context.Context, c *Cluster, asked call) (given answer, err error) {
	switch asked.Method {
	case "kubectl":
		given.Text, err = c.kubectl(ctx, asked.Input, asked.Args...)
	case "kubeconfig":
		var text []byte
		text, err = c.KubeconfigAt(asked.Who, h.reached)
		given.Text = string(text)
	case "compact":
		given.Number, err = c.Compact(ctx)
	case "create":
		err = c.Create(ctx, asked.Input)
	case "replace":
		err = c.Replace(ctx, asked.Replacements, asked.Rate)
	case "replaced":
		given.Number, err = c.Replaced(ctx)
	case "delete-stored":
		if len(asked.Args) != 3 {
			return given, fmt.Errorf("delete-stored: %d arguments, want resource, namespace and name", len(asked.Args))
		}
		err = c.DeleteStored(ctx, asked.Args[0], asked.Args[1], asked.Args[2])
	case "close":
		err = c.Close()
	default:
		err = c.change(ctx, asked.Method)
	}
	return given, err
}

// changes are the methods that need and give nothing, by the name they have on the wire.
var changes = map[string]func(*Cluster, context.Context) error{
	"start-apiserver":  (*Cluster).StartAPIServer,
	"stop-apiserver":   (*Cluster).StopAPIServer,
	"kill-apiserver":   (*Cluster).KillAPIServer,
	"pause-apiserver":  (*Cluster).PauseAPIServer,
	"resume-apiserver": (*Cluster).ResumeAPIServer,
	"start-etcd":       (*Cluster).StartEtcd,
	"stop-etcd":        (*Cluster).StopEtcd,
}

func (c *Cluster) change(ctx context.Context, method string) error {
	do, ok := changes[method]
	if !ok {
		return fmt.Errorf("no method %s", strings.ToValidUTF8(method, "?"))
	}
	return do(c, ctx)
}

// Close ends what clients left running.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for id, c := range h.clusters {
		errs = append(errs, c.Close())
		delete(h.clusters, id)
	}
	return errors.Join(errs...)
}
