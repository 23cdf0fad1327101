"""What an embedded node is made of: kernel, containerd, kubelet, controllers, pods' programs."""
