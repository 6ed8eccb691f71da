import { isAbsolute, join } from 'node:path';
import { isObjectUrl } from '../store-url.ts';

/**
 * Copies an order when its call is made: the program may change and reuse the order, or change the current folder,
 * before the call reads it. Leaves invalid values for the call to refuse.
 */
export function copyOrder<Order extends object>(order: Order): Order {
  if (typeof order !== 'object' || (order as Order | null) === null) return order;
  // Keeps inherited options.
  const copy = Object.assign(Object.create(Object.getPrototypeOf(order) as object | null) as object, order);
  for (const name of ['body', 'params']) if (Object.hasOwn(copy, name)) change(copy, name, copyJson);
  if (Object.hasOwn(copy, 'output')) change(copy, 'output', absolutePath);
  return copy;
}

function change(copy: object, name: string, by: (value: unknown) => unknown): void {
  Reflect.set(copy, name, by(Reflect.get(copy, name)));
}

function copyJson(value: unknown): unknown {
  try {
    return JSON.parse(JSON.stringify(value, refuseInfinite)) as unknown;
  } catch {
    return value;
  }
}

/** A replacer for JSON.stringify, which would convert these numbers to null. @throws RangeError */
export function refuseInfinite(_name: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError(`it contains ${value}`);
  return value;
}

// Keeps a slash at the end, which makes the path a folder.
function absolutePath(output: unknown): unknown {
  if (typeof output !== 'string' || output === '' || output === '-') return output;
  return isObjectUrl(output) || isAbsolute(output) ? output : join(process.cwd(), output);
}
