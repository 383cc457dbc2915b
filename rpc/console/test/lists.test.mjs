// Lists that are longer than a page: the server cuts, sorts, filters and counts them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Agent, Browser, eventually } from './world.mjs';

const many = 250;

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.waiting();
  b = await Browser.start(agent);
  page = b.page;
  const names = Array.from({ length: many }, (_, i) => `shop-${i + 1}`);
  const one = async () => {
    for (let name = names.pop(); name; name = names.pop()) await agent.api('POST', '/v1/clusters', { name, clusterTemplate: 'shop', numMachines: 3 });
  };
  await Promise.all(Array.from({ length: 8 }, one));
  await b.home();
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const rows = () => page.locator('tbody tr');
const first = () => page.locator('tbody tr').first().locator('th a').innerText();
const names = () => page.locator('tbody th a').allInnerTexts();

test('clusters come a page at a time, by keyboard', async () => {
  await page.goto(`${agent.url}/#/clusters?sort=name`);
  await page.getByText(`${many.toLocaleString('en')} clusters`, { exact: true }).waitFor();
  assert.equal(await rows().count(), 100);
  assert.equal(await first(), 'shop-1');
  await b.good('clusters-page-1');
  const pages = Math.ceil(many / 100);
  const seen = await names();
  for (let n = 2; n <= Math.min(pages, 3); n++) {
    await page.getByRole('button', { name: 'Next page' }).focus();
    await page.keyboard.press('Enter');
    await page.getByText(`Page ${n}`, { exact: true }).waitFor();
    await eventually('the next page is drawn', async () => (await first()) === `shop-${100 * (n - 1) + 1}`);
    // The keyboard is at the list, not at a button that is gone.
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Clusters');
    seen.push(...(await names()));
  }
  const expected = Math.min(many, 300);
  assert.deepEqual(seen, Array.from({ length: expected }, (_, i) => `shop-${i + 1}`)); // each exactly once, as people sort
  await b.good('clusters-page-3');
  // A page is a link, and the way back is the browser's.
  await page.reload();
  await eventually('the page is there again', async () => (await first().catch(() => '')) === 'shop-201');
  await page.getByRole('button', { name: 'Previous page' }).click();
  await eventually('the page before', async () => (await first()) === 'shop-101');
  await page.getByRole('button', { name: 'First page' }).click();
  await eventually('the first page', async () => (await first()) === 'shop-1');
  assert.deepEqual(b.complaints(), []);
});

test('the server sorts and searches', async () => {
  await page.getByRole('button', { name: 'Name' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('columnheader', { name: 'Name' }).and(page.locator('[aria-sort=descending]')).waitFor();
  await eventually('the last one comes first', async () => (await first()) === `shop-${many}`);
  await page.getByLabel(/^Search/).focus();
  await page.keyboard.type('SHOP-24 template=shop');
  await page.getByText('11 clusters', { exact: true }).waitFor(); // 24, 240 to 249
  assert.equal(await page.getByRole('button', { name: 'Next page' }).count(), 0);
  await page.getByLabel(/^Search/).fill('nosuchfield=1');
  await page.getByRole('alert').waitFor();
  await page.getByLabel(/^Search/).fill('"|,\\ name=<b>');
  await page.getByText('No cluster matches.').waitFor(); // what is typed is no part of the filter's grammar
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.deepEqual(b.complaints('422'), []);
});

test('operations and the home page are counted by the server', async () => {
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Operations' }).click();
  await page.getByText(`${many.toLocaleString('en')} operations`, { exact: true }).waitFor();
  assert.equal(await rows().count(), 100);
  await page.getByLabel('Status').selectOption('at work');
  await page.getByText(`${many.toLocaleString('en')} operations`, { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Next page' }).click();
  await page.getByText('Page 2', { exact: true }).waitFor();
  await b.good('operations-page-2');
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Home' }).click();
  await page.getByRole('link', { name: `${(many - 20).toLocaleString('en')} more operations` }).waitFor();
  await page.getByRole('listitem').filter({ hasText: 'not checked' }).getByText(String(many), { exact: true }).waitFor();
  assert.deepEqual(b.complaints(), []);
});

test('nodes come a page at a time', async () => {
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Nodes' }).click();
  await page.getByText(`${(3 * many).toLocaleString('en')} nodes`, { exact: true }).waitFor();
  assert.equal(await rows().count(), 100);
  await page.getByRole('button', { name: 'Hostname' }).click();
  await eventually('they are sorted', async () => (await first()).startsWith('shop-1'));
  const seen = new Set(await names());
  await page.getByRole('button', { name: 'Next page' }).click();
  await page.getByText('Page 2', { exact: true }).waitFor();
  await eventually('the next page is drawn', async () => !seen.has(await first()));
  await b.good('nodes-page-2');
  await page.getByLabel('State').selectOption('not ready yet');
  await page.getByText(`${(3 * many).toLocaleString('en')} nodes`, { exact: true }).waitFor();
  await page.getByLabel(/^Search/).fill('shop-24');
  await page.getByText('33 nodes', { exact: true }).waitFor(); // of 24, 240 to 249
  assert.deepEqual(b.complaints(), []);
});

test('a large plan comes a page at a time, with whole nodes', async () => {
  const t = await agent.api('GET', '/v1/clustertemplates/shop');
  t.constraints.size.max = 400;
  await agent.api('PUT', '/v1/clustertemplates/shop', t);
  const { operation } = await agent.api('POST', '/v1/clusters', { name: 'large', clusterTemplate: 'shop', numMachines: 300 });
  await page.goto(`${agent.url}/#/operation/${operation.id}`);
  const { progress } = await agent.api('GET', `/v1/operations/${operation.id}`);
  await page.getByText(`${progress.total.toLocaleString('en')} tasks`, { exact: true }).waitFor();
  const cells = async () => Object.fromEntries(await page.locator('.matrix tbody tr').evaluateAll((all) =>
    all.map((r) => [r.querySelector('th').innerText, r.querySelectorAll('a').length])));
  const whole = new Map();
  for (let n = 1; ; n++) {
    for (const [node, count] of Object.entries(await cells())) {
      if (whole.has(node)) assert.equal(whole.get(node), count, `${node} is cut`);
      whole.set(node, count);
    }
    const next = page.getByRole('button', { name: 'Next page' });
    if ((await next.count()) === 0) break;
    if (n === 1) await b.good('plan-page-1');
    const before = await page.locator('.matrix tbody th').first().innerText();
    await next.click();
    await eventually('the next page of the plan is drawn', async () => (await page.locator('.matrix tbody th').first().innerText()) !== before);
  }
  assert.equal(whole.size, 300);
  await page.getByLabel('Search in host names').fill([...whole.keys()][299]);
  await eventually('one node is left', async () => (await page.locator('.matrix tbody tr').count()) === 1);
  assert.deepEqual(b.complaints(), []);
});
