package relay_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine of the package behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
