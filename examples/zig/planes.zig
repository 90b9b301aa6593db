//! planes - a codec that sends all first bytes of a row, then all second ones, and so on. It is exact: a
//! transport that compresses finds equal bytes next to each other.
//!
//! An example of a plugin in Zig. The structs are those of the C headers, which the compiler reads itself.
const c = @cImport({
    @cInclude("tessera/codec.h");
});

const Planes = struct { host: *const c.tsr_host };

/// Puts the sentence into err and returns status; tsr_fail() has a variable number of arguments, which stays C's.
fn fail(err_: ?*c.tsr_err, status: c.tsr_status, sentence: []const u8) c.tsr_status {
    const err = err_ orelse return status;
    if (err.cap == 0) return status;
    const n = @min(err.cap - 1, sentence.len);
    @memcpy(err.text[0..n], sentence[0..n]);
    err.text[n] = 0;
    return status;
}

fn create(host: ?*const c.tsr_host, _: ?*const anyopaque, me: ?*?*anyopaque, err: ?*c.tsr_err) callconv(.c) c.tsr_status {
    const memory = host.?.alloc.?(host.?.ctx, @sizeOf(Planes), @alignOf(Planes)) orelse
        return fail(err, c.TSR_E_NOMEM, "out of memory: the codec planes");
    const planes: *Planes = @ptrCast(@alignCast(memory));
    planes.* = .{ .host = host.? };
    me.?.* = planes;
    return c.TSR_OK;
}

fn destroy(me: ?*anyopaque) callconv(.c) void {
    const planes: *Planes = @ptrCast(@alignCast(me orelse return));
    planes.host.release.?(planes.host.ctx, planes, @sizeOf(Planes));
}

fn exactness(_: ?*const anyopaque) callconv(.c) u32 {
    return c.TSR_CODEC_EXACT;
}

fn wireBytes(_: ?*const anyopaque, rows: u64, cols: u64, bytes: [*c]u64, err: ?*c.tsr_err) callconv(.c) c.tsr_status {
    const n = @mulWithOverflow(rows, cols);
    const all = @mulWithOverflow(n[0], 4);
    if (n[1] != 0 or all[1] != 0)
        return fail(err, c.TSR_E_UNSUPPORTED, "planes: a message has too many elements");
    bytes.* = all[0];
    return c.TSR_OK;
}

/// The status of a message whose numbers are at `numbers`.
fn check(job: *const c.tsr_codec_job, numbers: bool, err: ?*c.tsr_err) c.tsr_status {
    var bytes: u64 = 0;
    const status = wireBytes(null, job.rows, job.cols, &bytes, err);
    if (status != c.TSR_OK) return status;
    if (bytes != job.wire_bytes or (bytes > 0 and (!numbers or job.wire == null)))
        return fail(err, c.TSR_E_INVAL, "planes: wire_bytes is not that of rows and cols, or a buffer is missing");
    return c.TSR_OK;
}

fn encode(_: ?*const anyopaque, job_: ?*const c.tsr_codec_job, err: ?*c.tsr_err) callconv(.c) c.tsr_status {
    const job = job_.?;
    const status = check(job, job.src != null, err);
    if (status != c.TSR_OK or job.wire_bytes == 0) return status;
    const wire: [*]u8 = @ptrCast(job.wire.?);
    const from: [*]const u8 = @ptrCast(job.src);
    const cols = job.cols;
    for (0..job.rows) |r| for (0..cols) |k| for (0..4) |b| {
        wire[(r * 4 + b) * cols + k] = from[(r * cols + k) * 4 + b];
    };
    return c.TSR_OK;
}

/// Element k of row r.
fn element(job: *const c.tsr_codec_job, r: usize, k: usize) f32 {
    const wire: [*]const u8 = @ptrCast(job.wire.?);
    var bits: u32 = 0;
    for (0..4) |b|
        bits |= @as(u32, wire[(r * 4 + b) * job.cols + k]) << @intCast(8 * b);
    return @bitCast(bits);
}

fn decode(_: ?*const anyopaque, job_: ?*const c.tsr_codec_job, err: ?*c.tsr_err) callconv(.c) c.tsr_status {
    const job = job_.?;
    const status = check(job, job.dst != null, err);
    if (status != c.TSR_OK or job.wire_bytes == 0) return status;
    for (0..job.rows) |r| for (0..job.cols) |k| {
        job.dst[r * job.cols + k] = element(job, r, k);
    };
    return c.TSR_OK;
}

fn decodeAdd(_: ?*const anyopaque, job_: ?*const c.tsr_codec_job, err: ?*c.tsr_err) callconv(.c) c.tsr_status {
    const job = job_.?;
    const status = check(job, job.dst != null, err);
    if (status != c.TSR_OK or job.wire_bytes == 0) return status;
    for (0..job.rows) |r| for (0..job.cols) |k| {
        job.dst[r * job.cols + k] += element(job, r, k);
    };
    return c.TSR_OK;
}

const table = c.tsr_codec_v1{
    .struct_size = @sizeOf(c.tsr_codec_v1),
    .create = create,
    .destroy = destroy,
    .exactness = exactness,
    .wire_bytes = wireBytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decodeAdd,
};

const component = c.tsr_component{
    .struct_size = @sizeOf(c.tsr_component),
    .option_stride = @sizeOf(c.tsr_option),
    .kind = c.TSR_KIND_CODEC,
    .name = "planes",
    .summary = "Sends the bytes of numbers plane by plane, exactly.",
    .iface = &table,
};

const components = [_]?*const c.tsr_component{&component};

export const tsr_plugin_v1 = c.tsr_plugin{
    .magic = c.TSR_PLUGIN_MAGIC,
    .struct_size = @sizeOf(c.tsr_plugin),
    .abi_major = c.TSR_ABI_MAJOR,
    .abi_minor = c.TSR_ABI_MINOR,
    .id = "org.example.planes",
    .version = "1.0.0",
    .license = "Apache-2.0",
    .build = "zig",
    .components = &components,
    .n_components = 1,
};
