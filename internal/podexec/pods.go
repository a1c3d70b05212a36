package podexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
)

// Options say where the agents are.
type Options struct {
	// Namespace and Selector choose the pods of agents, Container theirs.
	Namespace, Selector, Container string
	// Node bounds them to one node; empty is all.
	Node string
}

// Client reaches the agents of a cluster.
type Client struct {
	config  *rest.Config
	base    *url.URL
	http    *http.Client
	options Options
	targets map[string]target // by node; written by Nodes alone
}

// A target is the pod of the agent of one node.
type target struct {
	pod                pod
	container, command string
	flags              []string
}

// New returns a client. Nothing is asked yet.
func New(config *rest.Config, o Options) (*Client, error) {
	config = rest.CopyConfig(config)
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	client := *shared                                                                                    // without special settings it is http.DefaultClient
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a token is for one server
	if client.Timeout == 0 {
		client.Timeout = listWithin
	}
	return &Client{config: config, base: base, http: &client, options: o}, nil
}

const (
	// listWithin bounds one request for a list of pods.
	listWithin = 30 * time.Second
	// podsPerPage is how many pods one request lists.
	podsPerPage = 500
	// mostPods bounds the pods of a cluster.
	mostPods = 20000
	// largestPage bounds one page of pods in bytes: a pod has 10 kB.
	largestPage = 64 << 20
	// longestError bounds what is read of an error of the API server, in bytes.
	longestError = 64 << 10
)

// pod has the fields of a pod that are read.
type pod struct {
	Metadata struct {
		Name, Namespace   string
		DeletionTimestamp *time.Time
		CreationTimestamp time.Time
	}
	Spec struct {
		NodeName   string
		Containers []container
	}
	Status struct {
		Phase, PodIP, HostIP string
	}
}

type container struct {
	Name          string
	Command, Args []string
	Env           []variable
}

type variable struct {
	Name, Value string
	ValueFrom   *struct {
		FieldRef *struct{ FieldPath string }
	}
}

// podList is one page.
type podList struct {
	Metadata struct{ Continue string }
	Items    []pod
}

// Nodes lists the nodes with an agent. Of two pods on a node the one counts that is not about to end,
// or the younger one.
func (c *Client) Nodes(ctx context.Context) ([]cluster.Node, error) {
	c.targets = map[string]target{}
	var order []string
	for next, n := "", 0; ; {
		page, err := c.page(ctx, next)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Items {
			if p.Spec.NodeName == "" || !named(p.Spec.NodeName) || !named(p.Metadata.Name) {
				continue
			}
			old, there := c.targets[p.Spec.NodeName]
			if there && !better(p, old.pod) {
				continue
			}
			if !there {
				order = append(order, p.Spec.NodeName)
			}
			c.targets[p.Spec.NodeName] = c.targetOf(p)
		}
		if n += len(page.Items); n > mostPods {
			return nil, fmt.Errorf("more than %d pods match %s in namespace %s", mostPods, c.options.Selector, c.options.Namespace)
		}
		if next = page.Metadata.Continue; next == "" {
			break
		}
	}
	if len(order) == 0 {
		return nil, c.noPods()
	}
	nodes := make([]cluster.Node, 0, len(order))
	for _, name := range order {
		nodes = append(nodes, cluster.Node{Name: name, Pod: c.targets[name].pod.Metadata.Name})
	}
	return nodes, nil
}

func (c *Client) noPods() error {
	where := ""
	if c.options.Node != "" {
		where = " on node " + c.options.Node
	}
	return fmt.Errorf("no pod of an agent matches %s in namespace %s%s: choose others with --selector and --agent-namespace", c.options.Selector, c.options.Namespace, where)
}

// named reports whether a text may be the name of a Node or a pod, and so a part of a path.
func named(s string) bool {
	return s != "" && len(s) <= 253 && !strings.HasPrefix(s, ".") && !strings.Contains(s, "..") && !strings.ContainsFunc(s, outsideNames)
}

func outsideNames(r rune) bool {
	return r != '-' && r != '.' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

// better reports whether a pod is asked instead of another one on its node.
func better(p, than pod) bool {
	if ends, other := p.Metadata.DeletionTimestamp != nil, than.Metadata.DeletionTimestamp != nil; ends != other {
		return other
	}
	return p.Metadata.CreationTimestamp.After(than.Metadata.CreationTimestamp)
}

// page lists some pods.
func (c *Client) page(ctx context.Context, next string) (podList, error) {
	q := url.Values{"labelSelector": {c.options.Selector}, "limit": {fmt.Sprint(podsPerPage)}}
	if c.options.Node != "" {
		q.Set("fieldSelector", "spec.nodeName="+c.options.Node)
	}
	if next != "" {
		q.Set("continue", next)
	}
	var list podList
	if err := c.get(ctx, &list, q, "pods"); err != nil {
		return list, fmt.Errorf("list the pods of agents in namespace %s: %w", c.options.Namespace, err)
	}
	return list, nil
}

// PodAddress returns the address of a pod.
func (c *Client) PodAddress(ctx context.Context, namespace, name string) (netip.Addr, error) {
	if !named(namespace) || !named(name) {
		return netip.Addr{}, fmt.Errorf("%s/%s is no name of a pod", namespace, name)
	}
	other := *c
	other.options.Namespace = namespace
	var p pod
	if err := other.get(ctx, &p, nil, "pods", name); err != nil {
		return netip.Addr{}, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	addr, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil {
		return addr, fmt.Errorf("pod %s/%s has no address yet", namespace, name)
	}
	return addr, nil
}

// path returns the URL of objects in the namespace.
func (c *Client) path(parts ...string) *url.URL {
	return c.base.JoinPath(append([]string{"api", "v1", "namespaces", c.options.Namespace}, parts...)...)
}

// get reads one object.
func (c *Client) get(ctx context.Context, into any, q url.Values, parts ...string) error {
	u := c.path(parts...)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(resp)
	}
	body := &io.LimitedReader{R: resp.Body, N: largestPage}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		if body.N <= 0 {
			return fmt.Errorf("the answer is larger than %d MiB", largestPage>>20)
		}
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	return nil
}

// refused returns the reason that an API server has.
func refused(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, longestError))
	if err != nil {
		return fmt.Errorf("%s, and the reason cannot be read: %w", resp.Status, err)
	}
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return errors.New(status.Message)
	}
	return errors.New(resp.Status)
}
