package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// etcd is the store behind the API server, on loopback and without TLS. It may lose data with the machine, never with a process.
type etcd struct {
	process
	url  string // where clients reach it
	http *http.Client
}

func newEtcd(path, dir string, clientPort, peerPort int) *etcd {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", clientPort), fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	return &etcd{
		url:  client,
		http: &http.Client{Timeout: 30 * time.Second},
		process: process{path: path, log: dir + "/etcd.log", args: []string{
			"--name=e2e",
			"--data-dir=" + dir + "/etcd",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=e2e=" + peer,
			"--unsafe-no-fsync",
			"--log-level=warn",
		}},
	}
}

// await returns when etcd answers.
func (e *etcd) await(ctx context.Context) error {
	return awaitReady(ctx, &e.process, func(ctx context.Context) error {
		return get(ctx, e.http, e.url+"/health")
	})
}

// call uses the JSON form of etcd's API: a POST per method (etcd's documentation, "gRPC gateway"). It spares its client library.
func (e *etcd) call(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", method, err)
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", method, err)
	}
	answer, err := e.http.Do(post)
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", method, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", method, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask etcd for %s: %s: %s", method, answer.Status, text)
	}
	return json.Unmarshal(text, response)
}

// compact deletes all revisions before the newest one and returns that. Revisions are the API's resource versions.
func (e *etcd) compact(ctx context.Context) (int64, error) {
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := e.call(ctx, "maintenance/status", struct{}{}, &status); err != nil {
		return 0, err
	}
	request := map[string]any{"revision": status.Header.Revision, "physical": true}
	if err := e.call(ctx, "kv/compaction", request, &struct{}{}); err != nil {
		return 0, err
	}
	return strconv.ParseInt(status.Header.Revision, 10, 64)
}
