package modules_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind, which then would be the package's.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
