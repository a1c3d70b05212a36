package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ServiceCIDRs of the group networking.k8s.io are read as JSON. The types of that group would be a
// megabyte of the program.
const (
	serviceCIDRsPath = "/apis/networking.k8s.io/v1/servicecidrs"
	serviceCIDRs     = "servicecidrs.networking.k8s.io"
)

// maxServiceCIDRBytes bounds the list of ServiceCIDRs; an object has less than 2 KiB.
const maxServiceCIDRBytes = 1 << 20

// ServiceCIDRs lists the ranges of cluster IPs once, those of objects that are being deleted
// included: Services may still have addresses in them. The agent needs a right of its own to list
// them.
func (c *Client) ServiceCIDRs(ctx context.Context) ([]netip.Prefix, error) {
	ctx = withReadBudget(ctx, newReadBudget(maxServiceCIDRBytes))
	text, err := c.core.Get().AbsPath(serviceCIDRsPath).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list %s: the API server does not have them, Kubernetes 1.33 and later do: %w", serviceCIDRs, err)
	}
	if err != nil {
		_, err = explain("list", serviceCIDRs, err)
		return nil, err
	}
	var list struct {
		Items []struct {
			Spec struct {
				CIDRs []string `json:"cidrs"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("list %s: %w", serviceCIDRs, err)
	}
	var out []netip.Prefix
	for _, item := range list.Items {
		for _, text := range item.Spec.CIDRs {
			r, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", serviceCIDRs, err)
			}
			out = append(out, r.Masked())
		}
	}
	return out, nil
}
