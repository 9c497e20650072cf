// Copyright (c) 2026, muster.training contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// netpol enforces the network policies of a cluster on the node it runs on: kube-router's controller, as K3s embeds it.
// At its end it takes its rules away again.
package main

import (
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Pods of one node reach each other over its bridge; without this no rule of the firewall sees their packets.
const bridged = "/proc/sys/net/bridge/bridge-nf-call-iptables"

func main() {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	config.HostnameOverride = os.Getenv("NODE_NAME")
	flag.StringVar(&config.ClusterIPCIDRs[0], "services", config.ClusterIPCIDRs[0], "the range of the Services")
	flag.DurationVar(&config.IPTablesSyncPeriod, "every", 30*time.Second, "how often rules are put right unasked")
	klog.InitFlags(nil)
	flag.Parse()
	if err := run(config); err != nil {
		klog.ErrorS(err, "netpol cannot work")
		klog.Flush()
		os.Exit(1)
	}
}

func run(config *options.KubeRouterConfig) error {
	if err := os.WriteFile(bridged, []byte("1"), 0); err != nil {
		return err
	}
	access, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	spaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, spaces, &sync.Mutex{}, nil, tables, sets)
	if err != nil {
		return err
	}
	if _, err := pods.AddEventHandler(controller.PodEventHandler); err != nil {
		return err
	}
	if _, err := spaces.AddEventHandler(controller.NamespaceEventHandler); err != nil {
		return err
	}
	if _, err := policies.AddEventHandler(controller.NetworkPolicyEventHandler); err != nil {
		return err
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats { // The controller waits until somebody has heard that it lives.
		}
	}()
	var workers sync.WaitGroup
	workers.Add(1)
	go controller.Run(beats, stop, &workers)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	<-asked
	close(stop)
	workers.Wait()
	controller.Cleanup()
	return nil
}
