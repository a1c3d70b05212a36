package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// remote is a cluster that a Host runs.
type remote struct {
	url  string
	id   int
	http *http.Client
}

func openRemote(ctx context.Context, url string, o Options) (Control, error) {
	o.Log = nil // the host has its own
	r := &remote{url: url, http: &http.Client{Transport: &http.Transport{}}}
	started, err := r.call(ctx, call{Method: "start", Options: o})
	if err != nil {
		return nil, err
	}
	r.id = int(started.Number)
	return r, nil
}

// call sends one request. The actions of a Host, and their names, are in its own file.
func (r *remote) call(ctx context.Context, asked call) (answer, error) {
	asked.Cluster = r.id
	given, err := r.post(ctx, asked)
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("ask the host to %s: %w", asked.Method, err)
	case given.NotBuilt:
		return answer{}, fmt.Errorf("on the host: %w", binaries.ErrNotBuilt)
	case given.Error != "":
		return answer{}, errors.New(given.Error)
	}
	return given, nil
}

func (r *remote) post(ctx context.Context, asked call) (given answer, err error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return given, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return given, err
	}
	response, err := r.http.Do(request)
	if err != nil {
		return given, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return given, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return given, json.NewDecoder(response.Body).Decode(&given)
}

func (r *remote) change(ctx context.Context, method string) error {
	_, err := r.call(ctx, call{Method: method})
	return err
}

func (r *remote) StartAPIServer(ctx context.Context) error  { return r.change(ctx, "start-apiserver") }
func (r *remote) StopAPIServer(ctx context.Context) error   { return r.change(ctx, "stop-apiserver") }
func (r *remote) KillAPIServer(ctx context.Context) error   { return r.change(ctx, "kill-apiserver") }
func (r *remote) PauseAPIServer(ctx context.Context) error  { return r.change(ctx, "pause-apiserver") }
func (r *remote) ResumeAPIServer(ctx context.Context) error { return r.change(ctx, "resume-apiserver") }
func (r *remote) StartEtcd(ctx context.Context) error       { return r.change(ctx, "start-etcd") }
func (r *remote) StopEtcd(ctx context.Context) error        { return r.change(ctx, "stop-etcd") }

func (r *remote) Compact(ctx context.Context) (int64, error) {
	given, err := r.call(ctx, call{Method: "compact"})
	return given.Number, err
}

func (r *remote) Kubeconfig(ctx context.Context, who Identity) ([]byte, error) {
	given, err := r.call(ctx, call{Method: "kubeconfig", Who: who})
	return []byte(given.Text), err
}

// Close must do its work when the test's context is over already.
func (r *remote) Close() error { return r.change(context.Background(), "close") }

func (r *remote) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	given, err := r.call(ctx, call{Method: "kubectl", Input: input, Args: args})
	return given.Text, err
}

func (r *remote) Kubectl(ctx context.Context, args ...string) (string, error) {
	return r.kubectl(ctx, "", args...)
}

func (r *remote) Apply(ctx context.Context, manifests string, flags ...string) error {
	return apply(ctx, r.kubectl, manifests, flags)
}

func (r *remote) Create(ctx context.Context, list string) error {
	_, err := r.call(ctx, call{Method: "create", Input: list})
	return err
}

// Replace begins with none at all: a call that is cut short on its way would leave the number of the last one.
func (r *remote) Replace(ctx context.Context, changes []Replacement, rate int) error {
	if _, err := r.call(context.WithoutCancel(ctx), call{Method: "replace", Rate: rate}); err != nil {
		return err
	}
	if _, err := r.call(ctx, call{Method: "replace", Replacements: changes, Rate: rate}); ctx.Err() == nil {
		return err
	}
	return nil // its end, as here
}

func (r *remote) Replaced(ctx context.Context) (int64, error) {
	given, err := r.call(ctx, call{Method: "replaced"})
	return given.Number, err
}

func (r *remote) DeleteStored(ctx context.Context, resource, namespace, name string) error {
	_, err := r.call(ctx, call{Method: "delete-stored", Args: []string{resource, namespace, name}})
	return err
}

func (r *remote) Token(ctx context.Context, namespace, account string) (string, error) {
	return token(ctx, r.kubectl, namespace, account)
}
