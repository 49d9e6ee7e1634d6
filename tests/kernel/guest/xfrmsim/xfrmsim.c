// SPDX-License-Identifier: GPL-2.0-only
/* xfrmsim: a pair of Ethernet devices (xs0 <-> xs1) that act like NICs with IPsec "crypto" and "packet"
 * offload, for tests of XFRMA_OFFLOAD_DEV. Unlike netdevsim the "hardware" really does AES-GCM (rfc4106),
 * so that the far end may be any ESP implementation. IPv4, ESP without UDP encapsulation. Kernel 6.12.
 * State and counters: /sys/kernel/debug/xfrmsim; writing 0 there removes the devices, 1 makes them again.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/etherdevice.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/ip.h>
#include <net/ip.h>
#include <net/esp.h>
#include <net/xfrm.h>
#include <crypto/aead.h>
#include <linux/scatterlist.h>

/* what has arrived waits in a ring, from which NAPI hands it to GRO: the stack's ESP then removes the headers before
 * IP sees the packet, as it is with real cards */
#define SIM_RING 4096
struct sim_dev {
	struct net_device *peer;
	struct napi_struct napi;
	struct sk_buff_head ring;
};
struct sim_sa {
	struct list_head list;
	struct xfrm_state *x;
	struct net_device *dev;
	struct crypto_aead *tfm;
	struct aead_request *req;
	bool rx, packet, esn;
	u64 seq;		/* out: last sent; in: highest seen */
	u64 win;		/* in: bitmap of the last 64 (packet mode) */
	u64 pkts, bytes, bad, replay, esn_calls;
};
struct sim_pol { struct list_head list; struct xfrm_policy *xp; struct net_device *dev; u8 dir; };

static DEFINE_SPINLOCK(sim_lock);
static LIST_HEAD(sas);
static LIST_HEAD(pols);
static struct net_device *devs[2];
static struct dentry *dbg;
static unsigned int capacity = 1024;
module_param(capacity, uint, 0644);
MODULE_PARM_DESC(capacity, "SAs per device and direction");

static bool sim_full(const struct net_device *dev, bool rx)
{
	unsigned int used = 0;
	struct sim_sa *sa;

	spin_lock_bh(&sim_lock);
	list_for_each_entry(sa, &sas, list)
		used += sa->dev == dev && sa->rx == rx;
	spin_unlock_bh(&sim_lock);
	return used >= capacity;
}

/* ---- control ---- */
static int sim_state_add(struct xfrm_state *x, struct netlink_ext_ack *extack)
{
	struct sim_sa *sa;
	int err;

	if (x->xso.flags & XFRM_DEV_OFFLOAD_FLAG_ACQ)
		return 0;
	if (x->id.proto != IPPROTO_ESP || x->props.family != AF_INET || x->encap) {
		NL_SET_ERR_MSG_MOD(extack, "only ESP over IPv4 without encapsulation");
		return -EOPNOTSUPP;
	}
	if (!x->aead || strcmp(x->aead->alg_name, "rfc4106(gcm(aes))") || x->aead->alg_icv_len != 128) {
		NL_SET_ERR_MSG_MOD(extack, "only rfc4106(gcm(aes)) with a 128-bit ICV");
		return -EOPNOTSUPP;
	}
	if (x->props.mode != XFRM_MODE_TRANSPORT && x->props.mode != XFRM_MODE_TUNNEL) {
		NL_SET_ERR_MSG_MOD(extack, "only transport and tunnel mode");
		return -EOPNOTSUPP;
	}
	if (sim_full(x->xso.dev, x->xso.dir == XFRM_DEV_OFFLOAD_IN)) {
		NL_SET_ERR_MSG_MOD(extack, "no room for another SA");
		return -ENOSPC;
	}
	sa = kzalloc(sizeof(*sa), GFP_KERNEL);
	if (!sa)
		return -ENOMEM;
	sa->tfm = crypto_alloc_aead("rfc4106(gcm(aes))", 0, CRYPTO_ALG_ASYNC);
	if (IS_ERR(sa->tfm)) {
		err = PTR_ERR(sa->tfm);
		kfree(sa);
		return err;
	}
	err = crypto_aead_setkey(sa->tfm, x->aead->alg_key, (x->aead->alg_key_len + 7) / 8);
	if (!err)
		err = crypto_aead_setauthsize(sa->tfm, 16);
	sa->req = err ? NULL : aead_request_alloc(sa->tfm, GFP_KERNEL);
	if (!sa->req) {
		crypto_free_aead(sa->tfm);
		kfree(sa);
		return err ?: -ENOMEM;
	}
	sa->x = x;
	sa->dev = x->xso.dev;
	sa->rx = x->xso.dir == XFRM_DEV_OFFLOAD_IN;
	sa->packet = x->xso.type == XFRM_DEV_OFFLOAD_PACKET;
	sa->esn = !!(x->props.flags & XFRM_STATE_ESN);
	x->xso.offload_handle = (unsigned long)sa;
	spin_lock_bh(&sim_lock);
	list_add_tail(&sa->list, &sas);
	spin_unlock_bh(&sim_lock);
	return 0;
}
static void sim_state_delete(struct xfrm_state *x)
{
	struct sim_sa *sa = (void *)x->xso.offload_handle;

	if (!sa)
		return;
	spin_lock_bh(&sim_lock);
	list_del_init(&sa->list);
	spin_unlock_bh(&sim_lock);
}
static void sim_state_free(struct xfrm_state *x)
{
	struct sim_sa *sa = (void *)x->xso.offload_handle;

	if (!sa)
		return;
	x->xso.offload_handle = 0;
	aead_request_free(sa->req);
	crypto_free_aead(sa->tfm);
	kfree(sa);
}
static bool sim_offload_ok(struct sk_buff *skb, struct xfrm_state *x)
{
	return !(ip_hdr(skb)->version == 4 && ip_hdr(skb)->ihl > 5);
}
static void sim_advance_esn(struct xfrm_state *x)
{
	struct sim_sa *sa = (void *)x->xso.offload_handle;

	if (sa)
		sa->esn_calls++;
}
static void sim_update_stats(struct xfrm_state *x)
{
	struct sim_sa *sa = (void *)x->xso.offload_handle;

	if (!sa || !sa->packet)
		return;
	x->curlft.packets = sa->pkts;
	x->curlft.bytes = sa->bytes;
	x->stats.integrity_failed = sa->bad;
	x->stats.replay = sa->replay;
}
static int sim_policy_add(struct xfrm_policy *xp, struct netlink_ext_ack *extack)
{
	struct sim_pol *p;

	if (xp->family != AF_INET) {
		NL_SET_ERR_MSG_MOD(extack, "only IPv4 policies");
		return -EINVAL;
	}
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	p->xp = xp;
	p->dev = xp->xdo.dev;
	p->dir = xp->xdo.dir;
	xp->xdo.offload_handle = (unsigned long)p;
	spin_lock_bh(&sim_lock);
	list_add_tail(&p->list, &pols);
	spin_unlock_bh(&sim_lock);
	return 0;
}
static void sim_policy_delete(struct xfrm_policy *xp)
{
	struct sim_pol *p = (void *)xp->xdo.offload_handle;

	if (!p)
		return;
	spin_lock_bh(&sim_lock);
	list_del_init(&p->list);
	spin_unlock_bh(&sim_lock);
}
static void sim_policy_free(struct xfrm_policy *xp)
{
	kfree((void *)xp->xdo.offload_handle);
	xp->xdo.offload_handle = 0;
}
static const struct xfrmdev_ops sim_xfrm_ops = {
	.xdo_dev_state_add = sim_state_add,
	.xdo_dev_state_delete = sim_state_delete,
	.xdo_dev_state_free = sim_state_free,
	.xdo_dev_offload_ok = sim_offload_ok,
	.xdo_dev_state_advance_esn = sim_advance_esn,
	.xdo_dev_state_update_stats = sim_update_stats,
	.xdo_dev_policy_add = sim_policy_add,
	.xdo_dev_policy_delete = sim_policy_delete,
	.xdo_dev_policy_free = sim_policy_free,
};

/* ---- the "hardware" ---- */
/* esp -> SPI | seq | IV(8) | data (len) | ICV(16); en/decrypts in place */
static int sim_crypt(struct sim_sa *sa, bool enc, u8 *esp, u32 seqhi, int len)
{
	int al = sa->esn ? 20 : 16, err;
	u8 iv[8], *b = kmalloc(al + len + 16, GFP_ATOMIC);
	__be32 hi = htonl(seqhi);
	struct scatterlist sg;

	if (!b)
		return -ENOMEM;
	memcpy(b, esp, 4);
	if (sa->esn) {
		memcpy(b + 4, &hi, 4);
		memcpy(b + 8, esp + 4, 12);
	} else {
		memcpy(b + 4, esp + 4, 12);
	}
	memcpy(iv, esp + 8, 8);
	memcpy(b + al, esp + 16, len + 16);
	sg_init_one(&sg, b, al + len + 16);
	aead_request_set_callback(sa->req, 0, NULL, NULL);
	aead_request_set_ad(sa->req, al);
	aead_request_set_crypt(sa->req, &sg, &sg, enc ? len : len + 16, iv);
	err = enc ? crypto_aead_encrypt(sa->req) : crypto_aead_decrypt(sa->req);
	if (!err)
		memcpy(esp + 16, b + al, enc ? len + 16 : len);
	kfree(b);
	return err;
}
static bool pfx(__be32 a, __be32 n, u8 l)
{
	return !l || !((ntohl(a) ^ ntohl(n)) >> (32 - l));
}
static struct sim_sa *sim_tx_packet_sa(struct net_device *dev, struct iphdr *ip)
{
	struct sim_pol *p;
	struct sim_sa *sa;

	list_for_each_entry(p, &pols, list) {
		struct xfrm_selector *s = &p->xp->selector;

		if (p->dev != dev || p->dir != XFRM_DEV_OFFLOAD_OUT || !p->xp->xfrm_nr ||
		    !pfx(ip->saddr, s->saddr.a4, s->prefixlen_s) || !pfx(ip->daddr, s->daddr.a4, s->prefixlen_d) ||
		    (s->proto && s->proto != ip->protocol))
			continue;
		list_for_each_entry(sa, &sas, list)
			if (sa->dev == dev && !sa->rx && sa->packet && sa->x->props.reqid == p->xp->xfrm_vec[0].reqid)
				return sa;
	}
	return NULL;
}
/* plain IPv4 packet -> ESP packet, as hardware in packet mode does */
static struct sk_buff *sim_encap(struct sim_sa *sa, struct sk_buff *skb)
{
	struct iphdr *ip = ip_hdr(skb), *o;
	bool tun = sa->x->props.mode == XFRM_MODE_TUNNEL;
	int hl = ip->ihl * 4, plen = ntohs(ip->tot_len) - (tun ? 0 : hl);
	int pad = -(plen + 2) & 3, clen = plen + pad + 2, i;
	struct sk_buff *n = alloc_skb(LL_MAX_HEADER + ETH_HLEN + hl + 16 + clen + 16, GFP_ATOMIC);
	u8 *esp;
	u64 seq;

	if (!n)
		return NULL;
	skb_reserve(n, LL_MAX_HEADER);
	skb_put_data(n, skb_mac_header(skb), ETH_HLEN);
	skb_reset_mac_header(n);
	if (tun)
		hl = 20;
	skb_set_network_header(n, ETH_HLEN);
	o = skb_put(n, hl);
	if (tun) {
		*o = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 64, .tos = ip->tos, .frag_off = htons(IP_DF),
			.saddr = sa->x->props.saddr.a4, .daddr = sa->x->id.daddr.a4 };
	} else {
		memcpy(o, ip, hl);
	}
	o->protocol = IPPROTO_ESP;
	o->tot_len = htons(hl + 16 + clen + 16);
	o->check = 0;
	o->check = ip_fast_csum((u8 *)o, o->ihl);
	esp = skb_put_zero(n, 16 + clen + 16);
	seq = ++sa->seq;
	*(__be32 *)esp = sa->x->id.spi;
	*(__be32 *)(esp + 4) = htonl((u32)seq);
	*(__be64 *)(esp + 8) = cpu_to_be64(seq);
	memcpy(esp + 16, (u8 *)ip + (tun ? 0 : hl), plen);
	for (i = 0; i < pad; i++)
		esp[16 + plen + i] = i + 1;
	esp[16 + plen + pad] = pad;
	esp[16 + plen + pad + 1] = tun ? IPPROTO_IPIP : ip->protocol;
	if (sim_crypt(sa, true, esp, seq >> 32, clen)) {
		kfree_skb(n);
		return NULL;
	}
	sa->pkts++;
	sa->bytes += plen;
	n->protocol = skb->protocol;
	return n;
}
static void set_sp(struct sk_buff *skb, struct xfrm_state *x, bool good)
{
	struct sec_path *sp = secpath_set(skb);
	struct xfrm_offload *xo;

	if (!sp)
		return;
	xfrm_state_hold(x);
	sp->xvec[sp->len++] = x;
	sp->olen++;
	xo = xfrm_offload(skb);
	xo->flags = CRYPTO_DONE;
	xo->status = good ? CRYPTO_SUCCESS : CRYPTO_TRANSPORT_ESP_AUTH_FAILED;
}
/* returns false: drop */
static bool sim_rx(struct net_device *dev, struct sk_buff *skb)
{
	struct iphdr *ip = (struct iphdr *)(skb->data);
	int hl, clen, bad, pad, plen;
	struct sim_sa *sa, *hit = NULL;
	bool tun;
	u64 seq;
	u32 lo, hi;
	u8 *esp;

	if (skb->protocol != htons(ETH_P_IP) || skb->len < 20 || ip->protocol != IPPROTO_ESP || ip_is_fragment(ip))
		return true;
	hl = ip->ihl * 4;
	esp = (u8 *)ip + hl;
	clen = ntohs(ip->tot_len) - hl - 32;
	if (clen < 4 || ntohs(ip->tot_len) > skb->len)
		return true;
	list_for_each_entry(sa, &sas, list)
		if (sa->dev == dev && sa->rx && sa->x->id.spi == *(__be32 *)esp && sa->x->id.daddr.a4 == ip->daddr)
			hit = sa;
	sa = hit;
	if (!sa)
		return true;
	lo = ntohl(*(__be32 *)(esp + 4));
	hi = sa->seq >> 32;
	if (sa->esn) {	/* RFC 4303 A2.2, window 64 */
		u32 t = sa->seq, b = t - 63;

		if (t >= 63)
			hi += lo < b;
		else
			hi -= lo >= b && hi;
	}
	seq = ((u64)(sa->esn ? hi : 0) << 32) | lo;
	bad = sim_crypt(sa, false, esp, hi, clen);
	if (!sa->packet) {
		if (!bad && seq > sa->seq)
			sa->seq = seq;
		sa->pkts++;
		set_sp(skb, sa->x, !bad);
		return true;
	}
	if (bad) {
		sa->bad++;
		return false;
	}
	if (seq > sa->seq) {
		sa->win = seq - sa->seq > 63 ? 1 : (sa->win << (seq - sa->seq)) | 1;
		sa->seq = seq;
	} else if (sa->seq - seq > 63 || (sa->win >> (sa->seq - seq)) & 1) {
		sa->replay++;
		return false;
	} else {
		sa->win |= 1ull << (sa->seq - seq);
	}
	pad = esp[16 + clen - 2];
	plen = clen - 2 - pad;
	if (plen < 0)
		return false;
	tun = sa->x->props.mode == XFRM_MODE_TUNNEL;
	if (tun) {
		skb_pull(skb, hl + 16);
		skb_trim(skb, plen);
	} else {
		ip->protocol = esp[16 + clen - 1];
		ip->tot_len = htons(hl + plen);
		ip->check = 0;
		ip->check = ip_fast_csum((u8 *)ip, ip->ihl);
		memmove(skb->data + 16, skb->data, hl);
		skb_pull(skb, 16);
		skb_trim(skb, hl + plen);
	}
	skb_reset_network_header(skb);
	sa->pkts++;
	sa->bytes += plen;
	set_sp(skb, sa->x, true);
	return true;
}
static void sim_arrived(struct net_device *dev, struct sk_buff *skb)
{
	struct sim_dev *sim = netdev_priv(dev);

	if (skb_queue_len(&sim->ring) >= SIM_RING) {
		dev_core_stats_rx_dropped_inc(dev);
		kfree_skb(skb);
		return;
	}
	skb_queue_tail(&sim->ring, skb);
	napi_schedule(&sim->napi);
}
static int sim_poll(struct napi_struct *napi, int budget)
{
	struct sim_dev *sim = container_of(napi, struct sim_dev, napi);
	struct sk_buff *skb;
	int done = 0;

	while (done < budget && (skb = skb_dequeue(&sim->ring))) {
		napi_gro_receive(napi, skb);
		done++;
	}
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}
static netdev_tx_t sim_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct net_device *peer = ((struct sim_dev *)netdev_priv(dev))->peer;
	struct xfrm_offload *xo;
	struct sim_sa *sa;

	if (skb_linearize_cow(skb))
		goto drop;
	skb_reset_mac_header(skb);
	spin_lock_bh(&sim_lock);
	xo = xfrm_offload(skb);
	if (xo) {						/* crypto mode: the stack made the ESP frame */
		struct xfrm_state *x = xfrm_input_state(skb);
		u8 *esp = (u8 *)ip_hdr(skb) + ip_hdr(skb)->ihl * 4;
		u32 lo = ntohl(*(__be32 *)(esp + 4));

		sa = (void *)x->xso.offload_handle;
		if (!sa)
			goto drop_unlock;
		*(__be64 *)(esp + 8) = cpu_to_be64(((u64)xo->seq.hi << 32) | lo);
		if (sim_crypt(sa, true, esp, xo->seq.hi, ntohs(ip_hdr(skb)->tot_len) - ip_hdr(skb)->ihl * 4 - 32))
			goto drop_unlock;
		sa->pkts++;
		sa->seq = lo;
	} else if (skb->protocol == htons(ETH_P_IP) && ip_hdr(skb)->protocol != IPPROTO_ESP &&
		   (sa = sim_tx_packet_sa(dev, ip_hdr(skb)))) {	/* packet mode: plain IP comes in */
		struct sk_buff *n = sim_encap(sa, skb);

		if (!n)
			goto drop_unlock;
		consume_skb(skb);
		skb = n;
	}
	dev_sw_netstats_tx_add(dev, 1, skb->len);
	if (!netif_running(peer))
		goto drop_unlock;
	skb_orphan(skb);
	skb_scrub_packet(skb, !net_eq(dev_net(dev), dev_net(peer)));
	secpath_reset(skb);
	skb->ip_summed = CHECKSUM_NONE;
	skb->protocol = eth_type_trans(skb, peer);
	skb_reset_network_header(skb);
	if (!sim_rx(peer, skb))
		goto drop_unlock;
	spin_unlock_bh(&sim_lock);
	dev_sw_netstats_rx_add(peer, skb->len);
	sim_arrived(peer, skb);
	return NETDEV_TX_OK;
drop_unlock:
	spin_unlock_bh(&sim_lock);
drop:
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}
static int sim_open(struct net_device *dev)
{
	struct sim_dev *sim = netdev_priv(dev);

	napi_enable(&sim->napi);
	netif_carrier_on(dev);
	netif_start_queue(dev);
	return 0;
}
static int sim_stop(struct net_device *dev)
{
	struct sim_dev *sim = netdev_priv(dev);

	netif_stop_queue(dev);
	napi_disable(&sim->napi);
	skb_queue_purge(&sim->ring);
	return 0;
}
static const struct net_device_ops sim_ops = {
	.ndo_open = sim_open, .ndo_stop = sim_stop, .ndo_start_xmit = sim_xmit,
	.ndo_set_mac_address = eth_mac_addr, .ndo_validate_addr = eth_validate_addr,
};
static void sim_setup(struct net_device *dev)
{
	ether_setup(dev);
	eth_hw_addr_random(dev);
	dev->netdev_ops = &sim_ops;
	dev->xfrmdev_ops = &sim_xfrm_ops;
	dev->needs_free_netdev = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->features |= NETIF_F_HW_ESP;
	dev->hw_enc_features |= NETIF_F_HW_ESP;
}
static int simdbg_show(struct seq_file *m, void *v)
{
	struct sim_sa *sa;
	struct sim_pol *p;

	spin_lock_bh(&sim_lock);
	list_for_each_entry(sa, &sas, list)
		seq_printf(m, "sa dev=%s dir=%s type=%s spi=0x%08x esn=%d pkts=%llu bytes=%llu seq=%llu bad=%llu replay=%llu advance_esn=%llu\n",
			   sa->dev->name, sa->rx ? "in" : "out", sa->packet ? "packet" : "crypto", ntohl(sa->x->id.spi), sa->esn,
			   sa->pkts, sa->bytes, sa->seq, sa->bad, sa->replay, sa->esn_calls);
	list_for_each_entry(p, &pols, list)
		seq_printf(m, "policy dev=%s dir=%s %pI4/%u -> %pI4/%u reqid=%u\n", p->dev->name,
			   p->dir == XFRM_DEV_OFFLOAD_OUT ? "out" : p->dir == XFRM_DEV_OFFLOAD_IN ? "in" : "fwd",
			   &p->xp->selector.saddr.a4, p->xp->selector.prefixlen_s, &p->xp->selector.daddr.a4,
			   p->xp->selector.prefixlen_d, p->xp->xfrm_nr ? p->xp->xfrm_vec[0].reqid : 0);
	spin_unlock_bh(&sim_lock);
	return 0;
}
static int sim_make(void)
{
	int i, err;

	for (i = 0; i < 2; i++) {
		devs[i] = alloc_netdev(sizeof(struct sim_dev), i ? "xs1" : "xs0", NET_NAME_ENUM, sim_setup);
		if (!devs[i])
			return -ENOMEM;
	}
	for (i = 0; i < 2; i++) {
		struct sim_dev *sim = netdev_priv(devs[i]);

		sim->peer = devs[!i];
		skb_queue_head_init(&sim->ring);
		netif_napi_add(devs[i], &sim->napi, sim_poll);
	}
	for (i = 0; i < 2; i++) {
		err = register_netdev(devs[i]);
		if (err)
			return err;
	}
	return 0;
}
/* together: each knows the other */
static void sim_remove(void)
{
	LIST_HEAD(gone);

	rtnl_lock();
	unregister_netdevice_queue(devs[0], &gone);
	unregister_netdevice_queue(devs[1], &gone);
	unregister_netdevice_many(&gone);
	rtnl_unlock();
	devs[0] = devs[1] = NULL;
}
static ssize_t simdbg_write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	bool want;
	int err = kstrtobool_from_user(text, len, &want);

	if (!err && want && !devs[0])
		err = sim_make();
	else if (!err && !want && devs[0])
		sim_remove();
	return err ?: len;
}
static int simdbg_open(struct inode *inode, struct file *file)
{
	return single_open(file, simdbg_show, inode->i_private);
}
static const struct file_operations simdbg_fops = {
	.owner = THIS_MODULE, .open = simdbg_open, .read = seq_read, .write = simdbg_write,
	.llseek = seq_lseek, .release = single_release,
};
static int __init sim_init(void)
{
	dbg = debugfs_create_file("xfrmsim", 0644, NULL, NULL, &simdbg_fops);
	return sim_make();
}
module_init(sim_init);	/* test fixture: cannot be unloaded */
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("test NIC pair with IPsec crypto and packet offload");
