package demo_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

// TestManifestsAreSound reads the demo's manifests as the agent does, so that a stricter reader is noticed without a kernel.
func TestManifestsAreSound(t *testing.T) {
	objects, problems, err := file.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("manifest: %v", p)
	}
	if len(objects.Nodes) != 1 || len(objects.Services) != 4 || len(objects.Slices) != 4 {
		t.Errorf("%d nodes, %d services, %d slices; want 1, 4, 4", len(objects.Nodes), len(objects.Services), len(objects.Slices))
	}
}
