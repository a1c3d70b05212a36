package kube_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// What the server sends is read when it is the turn of the source, and not before.
func TestReadInTurn(t *testing.T) {
	var turns source.Turns
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+`{"kind":"ServiceList","apiVersion":"v1"}`)
		_ = conn.Close()
	}))
	t.Cleanup(server.Close)
	client, err := kube.NewClient(kube.ClientOptions{Master: server.URL, Turns: &turns})
	if err != nil {
		t.Fatal(err)
	}
	release := turns.Hold(0, time.Minute)
	answered := make(chan error, 1)
	go func() {
		_, err := client.ListServices(t.Context(), "", metav1.ListOptions{})
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("answered out of turn: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
