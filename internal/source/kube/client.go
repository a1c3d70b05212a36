package kube

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// ClientOptions say how the API server is reached. Without Kubeconfig and Master it
// is the one of the cluster that the process runs in.
type ClientOptions struct {
	// Kubeconfig is a file; Master is a URL that wins over the one in it.
	Kubeconfig, Master string
	// ContentType and AcceptContentTypes are the encodings of requests and answers; empty is
	// protobuf, with JSON for objects that a server has in no other form.
	ContentType, AcceptContentTypes string
	// QPS and Burst bound the requests a second; 0 are kube-proxy's 5 and 10.
	QPS   float32
	Burst int
	// UserAgent names this program in the server's audit log.
	UserAgent string
	// Reached gets the addresses at which the server is reached; it may be nil.
	Reached *Reached
}

// The defaults of kube-proxy's --kube-api-qps and --kube-api-burst.
const (
	defaultQPS   = 5
	defaultBurst = 10
)

// ErrNoCluster means that no setting names an API server.
var ErrNoCluster = errors.New("no kubeconfig, no master, and this process does not run in a cluster")

// NewClient returns a client of the API server. It does not speak to it yet, but it
// has read every file that it will need: the error names the file and the remedy.
//
// A token that comes from a file is read again every minute, and after each 401, so
// a ServiceAccount's token may be rotated under the client.
//
// A connection that died without a reset is found by HTTP/2 pings. client-go sends one after 30 s
// without a frame (HTTP2_READ_IDLE_TIMEOUT_SECONDS in the environment) and closes the connection 15
// s later (HTTP2_PING_TIMEOUT_SECONDS). A server that cannot speak HTTP/2, or DISABLE_HTTP2, takes
// that away; the limits in limits.go hold then.
func NewClient(o ClientOptions) (*Client, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	o.apply(config)
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	own := *shared
	own.CheckRedirect = forbidCrossHostRedirect
	client, err := newClient(config, &own)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}

// forbidCrossHostRedirect refuses redirects away from the API server. net/http removes the
// credentials from a request to another host, but client-go adds them to each attempt again.
func forbidCrossHostRedirect(q *http.Request, before []*http.Request) error {
	from := before[0].URL
	switch {
	case q.URL.Scheme != from.Scheme || q.URL.Host != from.Host:
		return fmt.Errorf("%w: a redirect to %s://%s, which must not get the credentials", errUnexpectedObject, q.URL.Scheme, q.URL.Host)
	case len(before) >= maxRedirects:
		return fmt.Errorf("%w: stopped after %d redirects", errUnexpectedObject, maxRedirects)
	}
	return nil
}

// maxRedirects is the limit of net/http, which does not apply with a check of our own.
const maxRedirects = 10

// apply sets what does not depend on where the server is.
func (o ClientOptions) apply(config *rest.Config) {
	config.ContentType, config.AcceptContentTypes = o.ContentType, o.AcceptContentTypes
	if config.ContentType == "" {
		config.ContentType = runtime.ContentTypeProtobuf
		if config.AcceptContentTypes == "" {
			config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
	}
	if config.QPS = o.QPS; o.QPS == 0 {
		config.QPS = defaultQPS
	}
	if config.Burst = o.Burst; o.Burst == 0 {
		config.Burst = defaultBurst
	}
	if config.UserAgent = o.UserAgent; o.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if config.BearerTokenFile != "" {
		// client-go by itself would use a refused token for the rest of its minute.
		tokens := transport.NewCachedFileTokenSource(config.BearerTokenFile)
		config.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
		config.BearerToken, config.BearerTokenFile = "", ""
	}
	config.Wrap(report)
	reached := o.Reached
	if reached == nil {
		reached = &Reached{}
	}
	config.Dial = reached.dial
}
