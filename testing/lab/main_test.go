package lab

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Enter()
	goleak.VerifyTestMain(m)
}
