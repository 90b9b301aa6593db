//! shorten - a codec that sends the upper two or three bytes of each F32, rounded to nearest, ties to even.
//!
//! An example of a plugin in Rust.  The structs have the layout of the headers in tessera/; the host compares each
//! struct_size with its own before it reads a table.  No panic crosses the interface: there is no std, and a panic
//! ends the process.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr::null;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    extern "C" {
        fn abort() -> !;
    }
    unsafe { abort() }
}

// ---- tessera/status.h, host.h ----------------------------------------------------------------------------------

type tsr_status = i32;
const TSR_OK: tsr_status = 0;
const TSR_E_INVAL: tsr_status = -1;
const TSR_E_UNSUPPORTED: tsr_status = -3;
const TSR_E_NOMEM: tsr_status = -4;

#[repr(C)]
pub struct tsr_err {
    struct_size: u32,
    cap: u32,
    text: *mut u8,
    object_at: u32,
    object_bytes: u32,
    line: u32,
    column: u32,
}

#[repr(C)]
pub struct tsr_host {
    struct_size: u32,
    abi_major: u16,
    abi_minor: u16,
    ctx: *mut c_void,
    log: extern "C" fn(*mut c_void, i32, *const u8),
    alloc: extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
    release: extern "C" fn(*mut c_void, *mut c_void, u64),
    // parallel_for, cancelled and service follow; this plugin does not call them
}

/// Puts the sentence, which ends with a NUL, into err and returns st.
unsafe fn fail(err: *mut tsr_err, st: tsr_status, sentence: &[u8]) -> tsr_status {
    if !err.is_null() && (*err).cap > 0 {
        let n = core::cmp::min((*err).cap as usize, sentence.len());
        core::ptr::copy_nonoverlapping(sentence.as_ptr(), (*err).text, n);
        *(*err).text.add(n - 1) = 0;
    }
    st
}

// ---- tessera/codec.h -----------------------------------------------------------------------------------------

#[repr(C)]
pub struct tsr_codec_job {
    struct_size: u32,
    source: u32,
    site: u32,
    reserved: u32,
    rows: u64,
    cols: u64,
    src: *const f32,
    dst: *mut f32,
    wire: *mut u8,
    wire_bytes: u64,
}

type Work = extern "C" fn(*const Codec, *const tsr_codec_job, *mut tsr_err) -> tsr_status;

#[repr(C)]
struct tsr_codec_v1 {
    struct_size: u32,
    reserved: u32,
    create: extern "C" fn(*const tsr_host, *const Options, *mut *mut Codec, *mut tsr_err) -> tsr_status,
    destroy: extern "C" fn(*mut Codec),
    exactness: extern "C" fn(*const Codec) -> u32,
    wire_bytes: extern "C" fn(*const Codec, u64, u64, *mut u64, *mut tsr_err) -> tsr_status,
    encode: Work,
    decode: Work,
    decode_add: Work,
    calibration: [usize; 5], // observe, freeze, state_bytes, save and load: a codec without it has NULL
    extension: usize,
}

const LOSSY: u32 = 1;

// ---- the codec -------------------------------------------------------------------------------------------------

#[repr(C)]
pub struct Options {
    bytes: i64,
}

#[repr(C)]
pub struct Codec {
    host: *const tsr_host,
    bytes: usize, // of an element: 2 or 3
}

extern "C" fn create(host: *const tsr_host, o: *const Options, me: *mut *mut Codec, err: *mut tsr_err) -> tsr_status {
    unsafe {
        let p = ((*host).alloc)((*host).ctx, size_of::<Codec>() as u64, 8) as *mut Codec;
        if p.is_null() {
            return fail(err, TSR_E_NOMEM, b"out of memory: the codec shorten\0");
        }
        p.write(Codec { host, bytes: (*o).bytes as usize });
        *me = p;
    }
    TSR_OK
}

extern "C" fn destroy(me: *mut Codec) {
    if !me.is_null() {
        unsafe {
            let host = (*me).host;
            ((*host).release)((*host).ctx, me as *mut c_void, size_of::<Codec>() as u64);
        }
    }
}

extern "C" fn exactness(_: *const Codec) -> u32 {
    LOSSY
}

extern "C" fn wire_bytes(me: *const Codec, rows: u64, cols: u64, bytes: *mut u64, err: *mut tsr_err) -> tsr_status {
    unsafe {
        match rows.checked_mul(cols).and_then(|n| n.checked_mul((*me).bytes as u64)) {
            Some(n) => *bytes = n,
            None => return fail(err, TSR_E_UNSUPPORTED, b"shorten: a message has too many elements\0"),
        }
    }
    TSR_OK
}

/// The upper `bytes` bytes of x, rounded; a NaN stays one of its sign.
fn shorten(x: f32, bytes: usize) -> u32 {
    let u = x.to_bits();
    let drop = 32 - 8 * bytes as u32;
    if x.is_nan() {
        return (u | 0x0040_0000) >> drop;
    }
    let half = (1u32 << (drop - 1)) - 1;
    (u + half + (u >> drop & 1)) >> drop // the largest finite numbers become infinities
}

/// Elements of a message, or the reason why its buffers cannot be used.
unsafe fn elements(me: *const Codec, job: *const tsr_codec_job, data: *const f32, err: *mut tsr_err) -> Result<usize, tsr_status> {
    let mut bytes = 0;
    let st = wire_bytes(me, (*job).rows, (*job).cols, &mut bytes, err);
    if st != TSR_OK {
        return Err(st);
    }
    if bytes != (*job).wire_bytes || bytes > 0 && (data.is_null() || (*job).wire.is_null()) {
        return Err(fail(err, TSR_E_INVAL, b"shorten: wire_bytes is not that of rows and cols, or a buffer is missing\0"));
    }
    Ok(((*job).rows * (*job).cols) as usize)
}

extern "C" fn encode(me: *const Codec, job: *const tsr_codec_job, err: *mut tsr_err) -> tsr_status {
    unsafe {
        let n = match elements(me, job, (*job).src, err) {
            Ok(n) => n,
            Err(st) => return st,
        };
        let bytes = (*me).bytes;
        for i in 0..n {
            let low = shorten(*(*job).src.add(i), bytes).to_le_bytes();
            core::ptr::copy_nonoverlapping(low.as_ptr(), (*job).wire.add(i * bytes), bytes);
        }
    }
    TSR_OK
}

unsafe fn element(me: *const Codec, job: *const tsr_codec_job, i: usize) -> f32 {
    let mut whole = [0u8; 4];
    let bytes = (*me).bytes;
    core::ptr::copy_nonoverlapping((*job).wire.add(i * bytes), whole.as_mut_ptr().add(4 - bytes), bytes);
    f32::from_bits(u32::from_le_bytes(whole))
}

extern "C" fn decode(me: *const Codec, job: *const tsr_codec_job, err: *mut tsr_err) -> tsr_status {
    unsafe {
        match elements(me, job, (*job).dst, err) {
            Ok(n) => (0..n).for_each(|i| *(*job).dst.add(i) = element(me, job, i)),
            Err(st) => return st,
        }
    }
    TSR_OK
}

extern "C" fn decode_add(me: *const Codec, job: *const tsr_codec_job, err: *mut tsr_err) -> tsr_status {
    unsafe {
        match elements(me, job, (*job).dst, err) {
            Ok(n) => (0..n).for_each(|i| *(*job).dst.add(i) += element(me, job, i)),
            Err(st) => return st,
        }
    }
    TSR_OK
}

static TABLE: tsr_codec_v1 = tsr_codec_v1 {
    struct_size: size_of::<tsr_codec_v1>() as u32,
    reserved: 0,
    create,
    destroy,
    exactness,
    wire_bytes,
    encode,
    decode,
    decode_add,
    calibration: [0; 5],
    extension: 0,
};

// ---- tessera/option.h, component.h, plugin.h --------------------------------------------------------------------

const TSR_OPT_INT: u32 = 2;

/// A constant that holds addresses of other constants.
#[repr(transparent)]
pub struct Shared<T>(T);
unsafe impl<T> Sync for Shared<T> {}

#[repr(C)]
struct tsr_option {
    name: *const u8,
    help: *const u8,
    unit: *const u8,
    replaced_by: *const u8,
    kind: u32,
    flags: u32,
    offset: u64,
    def: i64,
    min: i64,
    max: i64,
    choices: *const c_void,
    n_choices: u64,
}

static OPTIONS: Shared<[tsr_option; 1]> = Shared([tsr_option {
    name: b"bytes\0".as_ptr(),
    help: b"Bytes of an element on the wire.\0".as_ptr(),
    unit: b"bytes\0".as_ptr(),
    replaced_by: null(),
    kind: TSR_OPT_INT,
    flags: 0,
    offset: 0,
    def: 2,
    min: 2,
    max: 3,
    choices: null(),
    n_choices: 0,
}]);

#[repr(C)]
struct tsr_component {
    struct_size: u32,
    option_stride: u32,
    kind: *const u8,
    name: *const u8,
    summary: *const u8,
    iface: *const tsr_codec_v1,
    options: *const Shared<[tsr_option; 1]>,
    n_options: u64,
    options_size: u64,
}

static COMPONENT: Shared<tsr_component> = Shared(tsr_component {
    struct_size: size_of::<tsr_component>() as u32,
    option_stride: size_of::<tsr_option>() as u32,
    kind: b"tessera.codec/1\0".as_ptr(),
    name: b"shorten\0".as_ptr(),
    summary: b"Sends the upper two or three bytes of each number, rounded.\0".as_ptr(),
    iface: &TABLE,
    options: &OPTIONS,
    n_options: 1,
    options_size: size_of::<Options>() as u64,
});

static COMPONENTS: Shared<[*const Shared<tsr_component>; 1]> = Shared([&COMPONENT]);

#[repr(C)]
pub struct tsr_plugin {
    magic: u64,
    struct_size: u32,
    abi_major: u16,
    abi_minor: u16,
    id: *const u8,
    version: *const u8,
    license: *const u8,
    build: *const u8,
    components: *const Shared<[*const Shared<tsr_component>; 1]>,
    n_components: u64,
    needs_minor: u32,
    reserved: u32,
}

#[no_mangle]
pub static tsr_plugin_v1: Shared<tsr_plugin> = Shared(tsr_plugin {
    magic: 0x314e_474c_5052_5354, // "TSRPLGN1"
    struct_size: size_of::<tsr_plugin>() as u32,
    abi_major: 1,
    abi_minor: 1,
    id: b"org.example.shorten\0".as_ptr(),
    version: b"1.0.0\0".as_ptr(),
    license: b"Apache-2.0\0".as_ptr(),
    build: b"rustc\0".as_ptr(),
    components: &COMPONENTS,
    n_components: 1,
    needs_minor: 0,
    reserved: 0,
});
