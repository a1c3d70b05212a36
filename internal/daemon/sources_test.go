package daemon

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

func TestAgentDoesNotReadStandardInput(t *testing.T) {
	if _, err := openSources(zap.NewNop(), config.Config{Inputs: config.Inputs{SourceDir: "-"}}); err == nil || !strings.Contains(err.Error(), "plan and diff read standard input") {
		t.Errorf("error %v", err)
	}
}
