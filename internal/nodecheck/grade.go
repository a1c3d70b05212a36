package nodecheck

import (
	"errors"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

// grade marks an error as lacking if the node does not support something.
func grade(err, unsupported error) error {
	if errors.Is(err, unsupported) {
		return diagnosis.Lacking(err)
	}
	return err
}
