package main

import (
	"context"
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type expression struct {
	Expression string             `json:"expression"`
	Driver     string             `json:"driver"`
	Device     resourceapi.Device `json:"device"`
	// Whether the expression is that of a derived attribute. Otherwise it is a selector.
	Derived bool `json:"derived"`
}

type value struct {
	Matches *bool                        `json:"matches,omitempty"`
	Derived *resourceapi.DeviceAttribute `json:"derived,omitempty"`
	// The error, and whether it occurred before the expression was evaluated for the device.
	Error   string  `json:"error,omitempty"`
	Compile bool    `json:"compile,omitempty"`
	Cost    *uint64 `json:"cost,omitempty"`
}

var compiler = cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})

func evaluated(line []byte) (any, error) {
	var e expression
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	compiled := compiler.CompileCELExpression(e.Expression, cel.Options{DisableCostEstimation: true, DerivedAttribute: e.Derived})
	if compiled.Error != nil {
		return value{Error: compiled.Error.Error(), Compile: true}, nil
	}
	device := cel.Device{
		Driver:                   e.Driver,
		AllowMultipleAllocations: e.Device.AllowMultipleAllocations,
		Attributes:               e.Device.Attributes,
		Capacity:                 e.Device.Capacity,
	}
	var v value
	if e.Derived {
		derived, details, err := compiled.EvaluateDerivedAttribute(context.Background(), device)
		v.Derived = derived
		if details != nil {
			v.Cost = details.ActualCost()
		}
		if err != nil {
			v.Error = err.Error()
		}
		return v, nil
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), device)
	if details != nil {
		v.Cost = details.ActualCost()
	}
	if err != nil {
		v.Error = err.Error()
	} else {
		v.Matches = &matches
	}
	return v, nil
}
