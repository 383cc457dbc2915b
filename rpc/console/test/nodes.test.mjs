// All nodes of a tenant: where they are, how they do, and the way to their clusters.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, Browser } from './world.mjs';

const evil = '<img src=x onerror=alert(1)>\u202e';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.start();
  b = await Browser.start(agent);
  page = b.page;
  await b.home();
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const heading = (name) => b.heading(name);
const node = (service) => page.getByRole('row').filter({ has: page.getByRole('cell', { name: service, exact: true }) });

test('without nodes, the page says what to do', async () => {
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Nodes' }).click();
  await heading('Nodes');
  await page.getByText('There are no nodes.').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  await b.good('nodes-empty');
  await page.getByRole('main').getByRole('link', { name: 'Create a cluster' }).waitFor();
  assert.deepEqual(b.complaints(), []);
});

test('nodes of all clusters are shown, with how they do', async () => {
  const provider = await agent.api('GET', '/v1/providers/local');
  await agent.api('PUT', '/v1/providers/local', { ...provider, provisioner: { ...provider.provisioner, zones: 'a, b', hosts: 'rack7, rack8' } });
  // The page is seen to show health, which is checked every 30 s otherwise.
  const store = await agent.api('GET', '/v1/services/shop-store');
  await agent.api('PUT', '/v1/services/shop-store', { ...store, 'health-check': { interval: '1s' } });
  for (const [name, nodes] of [['first', '6'], ['second', '5']])
    await agent.coopr('cluster', 'create', name, '--template', 'shop', '--nodes', nodes);
  await page.getByText('11 nodes', { exact: true }).waitFor(); // without a reload
  await node('shop-store').first().getByText('healthy', { exact: true }).waitFor();
  await b.good('nodes');
  // A zone and a machine lead to all nodes that are there.
  const all = await agent.api('GET', '/v1/nodes');
  for (const [name, place] of [['a', 'zone'], ['rack7', 'host']]) {
    const there = all.filter((n) => n[place] === name).length;
    assert.ok(there > 0 && there < 11);
    await page.getByRole('link', { name, exact: true }).first().click();
    await page.getByText(`${there} nodes`, { exact: true }).waitFor();
    await page.goBack();
    await page.getByText('11 nodes', { exact: true }).waitFor();
  }
  await page.getByLabel(/^Search/).fill('health.services.shop-store.status=healthy');
  await page.getByText('2 nodes', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Hostname' }).click();
  await page.getByRole('columnheader', { name: 'Hostname' }).and(page.locator('[aria-sort=ascending]')).waitFor();
  await page.getByLabel(/^Search/).fill('service=shop-store SECOND');
  await page.getByText('1 node', { exact: true }).waitFor();
  await page.reload(); // the search is in the link
  await page.getByText('1 node', { exact: true }).waitFor();
  const host = await page.getByRole('rowheader').innerText();
  await agent.coopr('node', 'pause', 'second', host, '--yes');
  await page.getByText('paused: shop-store').waitFor();
  await b.good('nodes-paused');
  // The same nodes as a map, by keyboard too; a node on it leads to its cluster.
  await page.getByRole('button', { name: 'Map', exact: true }).click();
  await page.getByText('1 paused').first().waitFor();
  await page.getByLabel(/^Search/).fill('');
  await page.getByText('11 nodes', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'a', exact: true }).getByRole('application').waitFor();
  await page.getByRole('combobox', { name: /^Grouped by/ }).selectOption('cluster');
  const second = page.getByRole('region', { name: 'second' }).getByRole('application', { name: /^second: map of 5 nodes/ });
  await second.focus();
  await page.keyboard.press('End');
  await page.getByRole('status').getByText(/· Cluster second ·/).waitFor();
  await b.good('map');
  // Each cell is drawn.
  const drawn = await second.evaluate((c) => new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer).filter(Boolean).length);
  assert.ok(drawn > 5 * 100, `${drawn} pixels`);
  await page.keyboard.press('Enter');
  await heading('Cluster second');
  await page.goBack();
  await page.getByRole('region', { name: 'first' }).getByRole('application').click({ position: { x: 5, y: 5 } });
  await heading('Cluster first');
  await page.goto(`${agent.url}/#/nodes?q=${encodeURIComponent('service=shop-store SECOND')}`);
  await page.getByText('1 node', { exact: true }).waitFor();
  // A node leads to its cluster, and its place there.
  await page.getByRole('link', { name: host }).click();
  await heading('Cluster second');
  assert.equal(await page.getByRole('rowheader').count(), 1);
  await page.goBack();
  await page.getByRole('cell', { name: 'second', exact: true }).getByRole('link').click();
  await heading('Cluster second');
  await page.goto(`${agent.url}/#/nodes?state=broken`);
  await page.getByText('No node matches.').waitFor();
  await page.goto(`${agent.url}/#/nodes?q=${encodeURIComponent(evil)}`);
  await page.getByText('No node matches.').waitFor();
  await page.goto(`${agent.url}/#/nodes?sort=${encodeURIComponent(evil)}`);
  await page.getByRole('alert').waitFor();
  assert.equal(await page.locator('main img').count(), 0);
  assert.deepEqual(b.complaints('422'), []);
});

test('everybody sees the nodes that they may list', async () => {
  const rita = await b.as('rita', 'read');
  try {
    await rita.goto(`${agent.url}/#/nodes`);
    await rita.getByText('11 nodes', { exact: true }).waitFor();
  } finally {
    await rita.context().close();
  }
  const uma = await b.as('uma', 'user');
  try {
    await uma.goto(`${agent.url}/#/nodes`);
    await uma.getByText('There are no nodes.').waitFor(); // she has no clusters
  } finally {
    await uma.context().close();
  }
  const file = join(agent.dir, 'ned.cedar');
  writeFileSync(file, 'forbid (principal is User, action, resource is Node) when { principal.name == "ned" };\n');
  await agent.coopr('policy', 'put', 'ned', file);
  const ned = await b.as('ned', 'read');
  try {
    await ned.goto(`${agent.url}/#/nodes`);
    await ned.getByText('There are no nodes.').waitFor(); // lists leave out what somebody may not see
  } finally {
    await ned.context().close();
  }
});
