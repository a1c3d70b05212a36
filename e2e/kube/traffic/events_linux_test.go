package traffic

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wantEvent waits for an Event about an object, and returns it.
func (a *api) wantEvent(t *testing.T, kind, name, reason string) *eventsv1.Event {
	t.Helper()
	var found *eventsv1.Event
	poll(t, fmt.Sprintf("Event %s on %s %s", reason, kind, name), settleTimeout, func() error {
		all, err := a.client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for i, e := range all.Items {
			if e.Reason == reason && e.Regarding.Kind == kind && e.Regarding.Name == name {
				found = &all.Items[i]
				return nil
			}
			others = append(others, e.Reason+" on "+e.Regarding.Kind+" "+e.Regarding.Name)
		}
		return fmt.Errorf("there are [%s]", strings.Join(others, ", "))
	})
	return found
}
